"""What each error in algorithms 1 and 2 of Yanush and Kropotov (2019) does to the distribution that is sampled.

Many chains start from exact draws of the target, so a right scheme stays where it is and a wrong one moves away. The
figures are the acceptance rate, the bias of the expected log density in standard deviations of one draw with its
standard error over independent chains, and the largest z of all the entries of the matrix and their squares.

    python -m experiments.orthogonal_hmc.errors_in_print [--smoke]
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import number, table, with_error
from experiments.orthogonal_hmc import truth
from experiments.orthogonal_hmc.matrix_mixture import (
    MatrixMixture,
    coordinate_names,
    coordinates,
    exact_coordinates,
    first_mode,
    log_density,
)
from experiments.orthogonal_hmc.printed import STOCHASTIC, VARIANTS, algorithm_1, algorithm_2

# friction, standard deviation of the gradient's noise, scheme
RIGHT = {
    "right, consistent": {"metric": "canonical"},
    "right, literal": {"metric": "literal"},
    "right, consistent, BAOAB": {"metric": "canonical"},
}
GROUPS = {
    "noise": (
        0.1,
        0.0,
        (
            "right, consistent",
            "right, literal",
            "literal, noise not projected",
            "one more factor of the step size in the noise",
            "isotropic noise with the canonical kick",
        ),
    ),
    "friction": (0.5, 0.0, ("right, consistent", "right, consistent, BAOAB", "exact Ornstein-Uhlenbeck variance")),
    "gradient noise": (
        0.3,
        10.0**0.5,
        (
            "right, consistent",
            "right, literal",
            "no deduction of the gradient's noise",
            "one β for every direction",
            "literal, no deduction of the gradient's noise",
            "literal, one β for every direction",
        ),
    ),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes.

    Attributes:
        num_chains: Independent chains.
        num_iterations: Iterations of algorithm 1 that count, after half as many that do not.
        num_steps: Steps of algorithm 2 that count, after half as many that do not.
        num_exact: Exact draws behind the truth.
        small: Step size and number of steps at which a right scheme accepts nearly everything.
        large: The same for an acceptance rate of 0.5 to 0.8, for each target.
        targets: Names of the targets of algorithm 1; algorithm 2 runs on the first.
        variants: Those of algorithm 1.
        step_sizes: Those of algorithm 2, by group.
        mixtures: Rows and columns of the matrix mixture of table 1, with and without its volume element.
        num_draws: Draws of each of 8 chains there.
        seeds: Repetitions.
    """

    num_chains: int = 1024
    num_iterations: int = 400
    num_steps: int = 4000
    num_exact: int = 400_000
    small: tuple[float, int] = (0.1, 10)
    large: tuple[tuple[str, float, int], ...] = (
        ("Langevin 3 × 2", 1.15, 3),
        ("Bingham 5 × 3", 0.85, 3),
        ("Langevin on SO(2)", 0.8, 3),
    )
    targets: tuple[str, ...] = ("Langevin 3 × 2", "Bingham 5 × 3", "Langevin on SO(2)")
    variants: tuple[str, ...] = tuple(VARIANTS)
    step_sizes: tuple[tuple[str, tuple[float, ...]], ...] = (
        ("noise", (0.1,)),
        ("friction", (0.1, 0.4)),
        ("gradient noise", (0.1,)),
    )
    mixtures: tuple[tuple[int, int], ...] = ((2, 2), (3, 2))
    num_draws: int = 10_000
    seeds: tuple[int, ...] = (0,)


def distribution(name: str):
    """A target by its name; its ``log_prob`` and exact draws are geodax's."""
    if name == "Langevin 3 × 2":
        return gx.distributions.MatrixLangevin(jnp.asarray([[2.0, 0.3], [0.0, 1.0], [0.5, 0.0]]))
    if name == "Bingham 5 × 3":
        return gx.distributions.MatrixBingham(
            jnp.diag(jnp.asarray([2.0, 1.0, 0.0, 0.0, -1.0])), jnp.asarray([1.0, 0.7, 0.3])
        )
    return gx.distributions.MatrixLangevin(1.3 * jnp.eye(2))


def exact_draws(name: str, key, num: int) -> jax.Array:
    """Independent draws; on the square matrices of determinant 1 only, where algorithm 1 starts."""
    if name != "Langevin on SO(2)":
        return distribution(name).sample(key, (num,))
    # tr = 2 cos(angle): the angle is von Mises with twice the concentration
    unit = gx.distributions.VonMisesFisher(jnp.asarray([1.0, 0.0]), 2.6).sample(key, (num,))
    c, s = unit[:, 0], unit[:, 1]
    return jnp.stack([jnp.stack([c, -s], -1), jnp.stack([s, c], -1)], -2)


def statistics(name: str, x: jax.Array) -> jax.Array:
    """Log density, entries and their squares, of one draw."""
    return jnp.concatenate([distribution(name).log_prob(x)[None], x.ravel(), x.ravel() ** 2])


def pieces(config: Config) -> list[Labels]:
    """The truth of each target, the variants of algorithm 1, those of algorithm 2."""
    labels: list[Labels] = [{"part": "truth", "target": name} for name in config.targets]
    large = {name: (eps, steps) for name, eps, steps in config.large}
    for seed in config.seeds:
        for name in config.targets:
            for variant in config.variants:
                for kind, (eps, steps) in (("small", config.small), ("large", large[name])):
                    piece = {"part": "algorithm 1", "target": name, "variant": variant, "kind": kind}
                    labels.append(piece | {"eps": eps, "steps": steps, "seed": seed})
            # with a single step the proposal of line 11 is the current point
            piece = {
                "part": "algorithm 1",
                "target": name,
                "variant": "literal, proposal one step early",
                "kind": "one step",
            }
            labels.append(piece | {"eps": config.small[0], "steps": 1, "seed": seed})
        for group, step_sizes in config.step_sizes:
            for eps in step_sizes:
                for variant in GROUPS[group][2]:
                    piece = {"part": "algorithm 2", "target": config.targets[0], "variant": variant, "group": group}
                    labels.append(piece | {"eps": eps, "seed": seed})
        for n, p in config.mixtures:
            labels += [{"part": "volume", "n": n, "p": p, "has_volume": v, "seed": seed} for v in (True, False)]
    return labels


@functools.cache
def _start(name: str, num: int, seed: int) -> jax.Array:
    return exact_draws(name, jax.random.key(1000 + seed), num)


@functools.cache
def _run_1(variant: str, name: str):
    """Averages over the second two thirds of the iterations, compiled once for all step sizes."""
    iterate = algorithm_1(VARIANTS[variant], distribution(name).log_prob)

    @functools.partial(jax.jit, static_argnums=4)
    def run(key, start, step_size, num_steps, num_kept):
        def chain(key, x):
            def body(carry, index):
                x, sums = carry
                new = iterate(jax.random.fold_in(key, index), x, step_size, num_steps)
                values = statistics(name, new.x), new.acceptance, new.jump
                is_kept = index >= num_kept // 2
                return (new.x, jax.tree.map(lambda s, v: s + jnp.where(is_kept, v, 0.0), sums, values)), None

            zero = jnp.zeros((), x.dtype)
            sums = (jnp.zeros_like(statistics(name, x)), zero, zero)
            (_, sums), _ = jax.lax.scan(body, (x, sums), jnp.arange(num_kept + num_kept // 2))
            return jax.tree.map(lambda s: s / num_kept, sums)

        return jax.vmap(chain)(jax.random.split(key, len(start)), start)

    return run


def _run_2(variant: str, group: str, name: str, eps: float, config: Config, key, start) -> jax.Array:
    """Averages of the statistics for each chain."""
    friction, noise, _ = GROUPS[group]
    log_prob = distribution(name).log_prob
    if variant in RIGHT:
        algorithm = gx.sghmc(
            log_prob,
            manifold=gx.Stiefel(**RIGHT[variant]),
            step_size=eps,
            friction=friction,
            gradient_noise=noise,
            perturb_gradient=lambda key, g: g + noise * jax.random.normal(key, g.shape, g.dtype),
            ordering="baoab" if "BAOAB" in variant else "paper",
        )
        init, step = algorithm.init, lambda key, state: algorithm.step(key, state)[0]
    else:
        move = algorithm_2(STOCHASTIC[variant], log_prob, friction, noise**2)
        init, step = (
            lambda x: (x, jnp.zeros_like(x)),
            lambda key, state: move(key, state, jnp.asarray(eps, start.dtype)),
        )

    @jax.jit
    def run(key, start):
        def chain(key, x):
            def body(carry, index):
                state, total = carry
                state = step(jax.random.fold_in(key, index), state)  # the position comes first in either
                is_kept = index >= config.num_steps // 2
                return (
                    state,
                    total + jnp.where(is_kept, statistics(name, state[0]), 0.0),
                ), None

            carry = (init(x), jnp.zeros_like(statistics(name, x)))
            (_, total), _ = jax.lax.scan(body, carry, jnp.arange(config.num_steps + config.num_steps // 2))
            return total / config.num_steps

        return jax.vmap(chain)(jax.random.split(key, len(start)), start)

    return run(key, start)


def _volume(config: Config, labels: Labels, num_chains: int = 8) -> Figures:
    """The coordinate of the matrix mixture that is farthest from its distribution under exact draws."""
    mixture = MatrixMixture(labels["n"], labels["p"], 0.3, (1.0, 2.0))
    algorithm = gx.hmc(
        log_density(mixture, labels["has_volume"]),
        manifold=gx.Product({"q": gx.Stiefel()}),
        step_size=0.08,
        num_integration_steps=20,
        length_jitter=0.3,
        step_size_jitter=0.2,
    )
    run = gx.sample(
        jax.random.key(labels["seed"]),
        algorithm,
        first_mode(mixture),
        num_samples=config.num_draws,
        num_warmup=config.num_draws // 10,
        num_chains=num_chains,
        keep=coordinates(mixture),
        progress=False,
    )
    draws = run["posterior"]["position"].values
    target = truth.from_draws(exact_coordinates(mixture, np.random.default_rng(2019), config.num_exact))
    sizes = truth.effective_sample_sizes(draws).sum(axis=0)
    difference = draws.mean(axis=(0, 1)) - target.mean
    error = np.sqrt(target.spread**2 / sizes + target.error**2)
    worst = int(np.argmax(np.abs(difference) / target.spread))
    return {
        "worst": coordinate_names(mixture)[worst],
        "bias": difference[worst] / target.spread[worst],
        "error": error[worst] / target.spread[worst],
        "z": np.abs(difference / error).max(),
    }


def measure(config: Config, labels: Labels) -> Figures:
    """The truth, or the averages of one variant's chains."""
    if labels["part"] == "volume":
        return _volume(config, labels)
    name = labels["target"]
    if labels["part"] == "truth":
        draws = exact_draws(name, jax.random.key(7), config.num_exact)
        return truth.from_draws(np.asarray(jax.vmap(lambda x: statistics(name, x))(draws)))._asdict()
    key = jax.random.key(labels["seed"])
    start = _start(name, config.num_chains, labels["seed"])
    if labels["part"] == "algorithm 2":
        means = _run_2(labels["variant"], labels["group"], name, labels["eps"], config, key, start)
        return {"means": means.mean(axis=0), "errors": _errors(means)}
    run = _run_1(labels["variant"], name)
    means, acceptance, jump = run(key, start, jnp.asarray(labels["eps"]), labels["steps"], config.num_iterations)
    return {
        "means": means.mean(axis=0),
        "errors": _errors(means),
        "acceptance": acceptance.mean(),
        "jump": jnp.sqrt(jump.mean()),
    }


def _errors(means: jax.Array) -> jax.Array:
    return means.std(axis=0, ddof=1) / len(means) ** 0.5


def verdict(record: Record, row: dict) -> tuple[float, float, float]:
    """Bias of the log density in standard deviations, its standard error, and the largest z of the other statistics."""
    target = record.row(part="truth", target=row["target"])
    difference = np.subtract(row["means"], target["mean"])
    error = np.sqrt(np.square(row["errors"]) + np.square(target["error"]))
    z = np.abs(difference) / np.maximum(error, 1e-12)
    spread = target["spread"][0]
    return difference[0] / spread, error[0] / spread, z[1:].max()


def algorithm_1_table(target: str):
    """Every variant at both step sizes."""

    def render(record: Record) -> str:
        if target not in record.config["targets"]:
            return ""
        lines = []
        for variant in record.config["variants"]:
            line: list = [variant]
            for kind in ("small", "large"):
                row = record.row(part="algorithm 1", target=target, variant=variant, kind=kind)
                bias, error, z = verdict(record, row)
                if row["acceptance"] < 1e-3:
                    line += [f"{row['acceptance']:.2f}", "does not move", ""]
                else:
                    line += [f"{row['acceptance']:.2f}", with_error(bias, error), number(z, 2)]
            lines.append(line)
        row = record.row(part="algorithm 1", target=target, kind="one step")
        lines.append(
            [f"{row['variant']}, m = 1", f"{row['acceptance']:.2f}", f"jump {number(row['jump'])}", "", "", "", ""]
        )
        sizes = {kind: record.rows(part="algorithm 1", target=target, kind=kind)[0] for kind in ("small", "large")}
        small, large = (f"ε {row['eps']}, {row['steps']} steps: acceptance" for row in sizes.values())
        return table(
            ["variant", small, "bias of log π in sd", "z of the rest", large, "bias of log π in sd", "z of the rest"],
            lines,
        )

    return render


def algorithm_2_table(record: Record) -> str:
    """Every variant of the stochastic scheme."""
    lines = []
    for group, (friction, noise, variants) in GROUPS.items():
        for variant in variants:
            for row in record.rows(part="algorithm 2", group=group, variant=variant):
                bias, error, z = verdict(record, row)
                lines.append([variant, friction, noise, row["eps"], with_error(bias, error), number(z, 2)])
    return table(["variant", "α", "gradient noise sd", "ε", "bias of log π in sd", "z of the rest"], lines)


def volume_table(record: Record) -> str:
    """The matrix mixture with and without its volume element."""
    lines = [
        [
            f"{row['n']} × {row['p']}",
            "with the volume element" if row["has_volume"] else "as printed",
            f"$\\mathrm{{E}}\\,{row['worst'][0].upper()}_{{{row['worst'][1:]}}}$",
            with_error(row["bias"], row["error"]),
            number(row["z"], 2),
        ]
        for row in record.rows(part="volume")
    ]
    return table(["target", "density", "farthest off", "bias in sd", "z"], lines, "lllrr")


EXPERIMENT = Experiment(
    name="orthogonal_hmc/errors_in_print",
    config=Config(),
    smoke=Config(
        num_chains=8,
        num_iterations=10,
        num_steps=10,
        num_exact=1000,
        num_draws=50,
        mixtures=((3, 2),),
        targets=("Langevin 3 × 2",),
        variants=("literal, mended", "literal, ratio as printed"),
        step_sizes=(("friction", (0.4,)),),
    ),
    pieces=pieces,
    measure=measure,
    tables={
        "langevin-3x2": algorithm_1_table("Langevin 3 × 2"),
        "bingham-5x3": algorithm_1_table("Bingham 5 × 3"),
        "langevin-so2": algorithm_1_table("Langevin on SO(2)"),
        "algorithm-2": algorithm_2_table,
        "volume": volume_table,
    },
)

if __name__ == "__main__":
    main(EXPERIMENT)
