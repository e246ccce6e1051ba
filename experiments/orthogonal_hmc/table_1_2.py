"""Tables 1 and 2 of Yanush and Kropotov (2019): effective sample sizes and times on the matrix mixture.

One chain of 20,000 iterations from the first mode, the first 10,000 discarded, for each seed; the paper does not give
the number of leapfrog steps, the step size, nor the number of seeds of its table 1. Times are seconds of the processor,
which other programs on the machine disturb less than the clock, without compilation.

    python -m experiments.orthogonal_hmc.table_1_2 [--smoke]
"""

import dataclasses
import time

import jax
import numpy as np

import geodax as gx
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import SERIES, number, panels, spread, table
from experiments.orthogonal_hmc import truth
from experiments.orthogonal_hmc.matrix_mixture import MatrixMixture, exact_coordinates
from experiments.orthogonal_hmc.samplers import POLAR, SPACES, problem

NAMES = {
    "polar": "HMC, polar",
    "gHMC": "gHMC",
    "literal": "oHMC, literal",
    "consistent": "oHMC, consistent",
    "nuts": "NUTS, consistent",
    "nuts-polar": "NUTS, polar",
}
PAPER = {"polar": (20.3, 63.8), "gHMC": (50.2, 80.4), "literal": (103.8, 139.7)}
PAPER_SECONDS = {"polar": 13.9, "gHMC": 21.2, "literal": 14.7}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: One chain each.
        targets: Rows and columns of the matrix.
        num_samples: Draws kept.
        num_burn: Iterations before them.
        sigma: Standard deviation of a mode.
        short: Step size and number of steps of the short trajectories, fixed.
        step_sizes: Those tried with the long trajectories, jittered by 20 %.
        num_steps: Steps of a long trajectory, jittered by 30 %.
        num_exact: Exact draws behind the truth.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    targets: tuple[tuple[int, int], ...] = ((2, 2), (3, 2))
    num_samples: int = 10_000
    num_burn: int = 10_000
    sigma: float = 0.3
    short: tuple[float, int] = (0.04, 5)
    step_sizes: tuple[float, ...] = (0.04, 0.06, 0.08)
    num_steps: int = 30
    num_exact: int = 4_000_000


def pieces(config: Config) -> list[Labels]:
    """The truth of each target; then seed by seed every method with every setting, so that methods alternate."""
    labels: list[Labels] = [{"part": "truth", "n": n, "p": p} for n, p in config.targets]
    settings = [("short", *config.short), *(("long", eps, config.num_steps) for eps in config.step_sizes)]
    for seed in config.seeds:
        for n, p in config.targets:
            target = {"part": "chain", "n": n, "p": p}
            for kind, eps, steps in settings:
                for method in SPACES:
                    labels.append(target | {"method": method, "kind": kind, "eps": eps, "steps": steps, "seed": seed})
            # in the polar coordinates of square matrices a trajectory of NUTS takes about a thousand steps
            for method in ["nuts"] if n == p else ["nuts", "nuts-polar"]:
                labels.append(target | {"method": method, "kind": "tuned", "eps": None, "steps": None, "seed": seed})
    longest = settings[-1]
    for seed in config.seeds:
        for n, p in config.targets:
            for kind, eps, steps in (settings[0], longest):
                for method in SPACES:
                    piece = {"part": "time", "n": n, "p": p, "method": method, "kind": kind}
                    labels.append(piece | {"eps": eps, "steps": steps, "seed": seed})
    return labels


def measure(config: Config, labels: Labels) -> Figures:
    """One chain, or the truth."""
    mixture = MatrixMixture(labels["n"], labels["p"], config.sigma, (1.0, 2.0))
    if labels["part"] == "truth":
        rng = np.random.default_rng(2019)
        return truth.from_draws(truth.with_squares(exact_coordinates(mixture, rng, config.num_exact)))._asdict()
    method = labels["method"]
    target = problem(mixture, {"nuts": "consistent", "nuts-polar": POLAR}.get(method, method))
    if labels["kind"] == "tuned":
        algorithm = gx.nuts(target.logdensity_fn, manifold=target.manifold)
    else:
        is_long = labels["kind"] == "long"
        algorithm = gx.hmc(
            target.logdensity_fn,
            manifold=target.manifold,
            step_size=labels["eps"],
            num_integration_steps=labels["steps"],
            length_jitter=0.3 if is_long else 0.0,
            step_size_jitter=0.2 if is_long else 0.0,
        )
    clock = []
    run = gx.sample(
        jax.random.key(labels["seed"]),
        algorithm,
        target.start,
        num_samples=config.num_samples,
        num_warmup=config.num_burn,
        num_chains=1,
        keep=target.keep,
        progress=lambda _: clock.append(time.process_time()),
    )
    if labels["part"] == "time":
        # from the end of the first chunk, which is one iteration
        return {"cpu_seconds": clock[-1] - clock[0], "gradients": int(run["sample_stats"]["n_steps"].sum())}
    stats = run["sample_stats"]
    return truth.worth(run["posterior"]["position"].values) | {
        "acceptance": float(stats["acceptance_rate"].mean()),
        "divergences": int(stats["diverging"].sum()),
        "gradients": int(stats["n_steps"].sum()),
        "step_size": float(stats["step_size"].mean()),
        "seconds": run.attrs["sampling_seconds"],
        "compile_seconds": run.attrs["compile_seconds"],
    }


def summary(record: Record, rows: list[dict]) -> dict:
    """What a row of a table says about the chains of one method with one setting."""
    target = record.row(part="truth", n=rows[0]["n"], p=rows[0]["p"])
    return truth.pooled(rows, target) | {
        "acceptance": np.mean([row["acceptance"] for row in rows]),
        "gradients": np.mean([row["gradients"] for row in rows]) / 1e3,
    }


def best_step_size(record: Record, n: int, p: int, method: str) -> float:
    """The step size of long trajectories with the largest smallest ESS, on average over the seeds."""
    found = {
        eps: summary(record, record.rows(part="chain", n=n, p=p, method=method, kind="long", eps=eps))["min"].mean()
        for eps in record.config["step_sizes"]
    }
    return max(found, key=found.__getitem__)


_TICKS = (30, 100, 300, 1_000, 3_000, 10_000)  # of the picture
HEADER = [
    "method",
    "setting",
    "ESS min",
    "ESS median",
    "acceptance",
    "thousand gradients",
    "z",
    "bias in sd",
]


def settings_table(n: int, p: int, kind: str):
    """Every method with the short trajectories, or each with its best step size."""

    def render(record: Record) -> str:
        lines = []
        methods = [*SPACES] if kind == "short" else [*SPACES, "nuts", "nuts-polar"]
        for method in methods:
            is_nuts = method.startswith("nuts")
            labels = {"kind": "tuned" if is_nuts else kind}
            if kind == "long" and not is_nuts:
                labels["eps"] = best_step_size(record, n, p, method)
            rows = record.rows(part="chain", n=n, p=p, method=method, **labels)
            if not rows:
                continue
            found = summary(record, rows)
            setting = "tuned in warm-up" if is_nuts else f"ε {rows[0]['eps']}, {rows[0]['steps']} steps"
            line = [NAMES[method], setting, spread(found["min"]), spread(found["median"]), found["acceptance"]]
            line += [found["gradients"], found["z"], found["bias"]]
            if kind == "short" and (n, p) == (2, 2):
                line += [*PAPER.get(method, (None, None))]
            lines.append(line)
        header = [*HEADER]
        if kind == "short" and (n, p) == (2, 2):
            header += ["paper: min", "paper: median"]
        return table(header, lines)

    return render


def time_table(record: Record) -> str:
    """Seconds of the processor for all iterations, least and median over the repetitions."""
    lines = []
    for method in SPACES:
        line = [NAMES[method]]
        for kind in ("short", "long"):
            for n, p in record.config["targets"]:
                seconds = record.values("cpu_seconds", part="time", n=n, p=p, method=method, kind=kind)
                line.append(f"{number(seconds.min())} / {number(np.median(seconds))}")
        lines.append([*line, PAPER_SECONDS.get(method)])
    targets = [f"{n} × {p}" for n, p in record.config["targets"]]
    steps = {"short": record.config["short"][1], "long": record.config["num_steps"]}
    columns = [f"{target}, {count} steps" for count in steps.values() for target in targets]
    return table(["method", *columns, "paper, 2 × 2"], lines)


def sweep_table(record: Record) -> str:
    """Smallest ESS and acceptance of every method at every step size of the long trajectories."""
    lines = []
    for n, p in record.config["targets"]:
        for method in SPACES:
            line = [f"{n} × {p}, {NAMES[method]}"]
            for eps in record.config["step_sizes"]:
                rows = record.rows(part="chain", n=n, p=p, method=method, kind="long", eps=eps)
                found = summary(record, rows)
                line.append(f"{spread(found['min'])} ({found['acceptance']:.2f})")
            lines.append(line)
    return table(["target, method", *(f"ε {eps}" for eps in record.config["step_sizes"])], lines)


def sweep_picture(record: Record):
    """Smallest ESS against the length of a trajectory, for each target."""
    figure, axes = panels(1, len(record.config["targets"]), height=3.2)
    for ax, (n, p) in zip(axes[0], record.config["targets"], strict=True):
        for colour, method in zip(SERIES, SPACES, strict=False):
            points = {}
            for row in record.rows(part="chain", n=n, p=p, method=method):
                points.setdefault((row["eps"], row["steps"]), []).append(row)
            lengths = [eps * steps for eps, steps in points]
            least = [summary(record, rows)["min"] for rows in points.values()]
            ax.plot(lengths, [v.mean() for v in least], color=colour, linewidth=1.2, label=NAMES[method])
            for length, values in zip(lengths, least, strict=True):
                ax.plot([length] * len(values), values, "o", color=colour, markersize=2.5, alpha=0.6)
        ax.set_title(f"{n} × {p}", fontsize=9)
        ax.set_xlabel("step size × number of steps", fontsize=9)
        ax.set_ylabel("smallest ESS of 10,000 draws", fontsize=9)
        ax.set_yscale("log")
        ax.set_yticks(_TICKS, [f"{tick:,}" for tick in _TICKS])
        ax.set_yticks([], minor=True)
        ax.set_ylim(20, _TICKS[-1])
    axes[0][0].legend(frameon=False, fontsize=8)
    return figure


EXPERIMENT = Experiment(
    name="orthogonal_hmc/table_1_2",
    config=Config(),
    smoke=Config(seeds=(0,), num_samples=100, num_burn=50, step_sizes=(0.08,), num_steps=4, num_exact=10_000),
    pieces=pieces,
    measure=measure,
    tables={
        "short-2x2": settings_table(2, 2, "short"),
        "short-3x2": settings_table(3, 2, "short"),
        "long-2x2": settings_table(2, 2, "long"),
        "long-3x2": settings_table(3, 2, "long"),
        "sweep": sweep_table,
        "time": time_table,
    },
    pictures={"sweep": sweep_picture},
)

if __name__ == "__main__":
    main(EXPERIMENT)
