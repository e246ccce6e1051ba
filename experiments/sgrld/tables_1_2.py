"""Tables 1, 2, 6, 8, 10 and figures 3, 4 of Yu, Hartmann, Williams and Klami (2023): MNIST, dense networks 784-N-N-10.

    python -m experiments.sgrld.tables_1_2 --only hidden=400 --seeds 3        # goes on where it was stopped
    python -m experiments.sgrld.tables_1_2 --seeds 10 --together 10           # on a GPU
    python -m experiments.sgrld.tables_1_2 --only epochs=2                    # times all settings, on one machine
    python -m experiments.sgrld.tables_1_2 --only hidden=400 --epochs 20      # short runs, which the tables call so
    python -m experiments.sgrld.tables_1_2 --smoke

The paper's learning rates, 400 epochs, batches of 100, burn-in of 1,000 iterations and an ensemble of every hundredth
draw. Chains are made on 50,000 images, the 500 batches an epoch that the authors' notebooks count. Seconds are those of
runs of two epochs of their own, one after the other, since long runs may be spread over machines. The horseshoe has one
scale an array, which is a parameter, as in the library that the paper builds on. Where biases start
matters for more than 400 epochs: uniformly, as by default in the authors' program, under the Gaussian prior; at zero,
another of its options, under the horseshoe, from where Wenzel's figures are those in print. Chains from other starts
fill gaps and are marked.
"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

import geodax as gx
from experiments.common import classifiers
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import SERIES, number, panels, table
from experiments.sgrld import published
from experiments.sgrld.networks import drawn, metric_of, run_sgrld

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# not in the paper, and what they vary
ADDED = {
    "Monge, Γ and lag": "Monge",
    "Monge, averaged Γ": "Monge",
    "Monge, lag": "Monge",
    "Shampoo, vectors too": "Shampoo",
    "Shampoo, whole matrices": "Shampoo",
}
FULL, AVERAGED, LAGGED, FORMULAS, WHOLE = ADDED
SWEEP = "horseshoe"
FASTER = {1.5: 0.5, 2.0: 0.5}  # Monge's weights with the learning rate that print has for them
NUM_TRAIN = 50_000
STARTS = {"gaussian": "uniform", "horseshoe": "zero"}  # of biases
OTHER_STARTS = {"gaussian": {"biases drawn": "normal"}, "horseshoe": {"biases uniform": "uniform"}}
TIMED_EPOCHS = 2
_IDENTITY = ["identity (α² = 0)", ""]
_TITLES = {"gaussian": "Gaussian prior", "horseshoe": "horseshoe prior"}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: Independent runs of each setting.
        epochs: Passes through the data; a label of each piece.
        data: A set of images of :func:`experiments.common.classifiers.load`.
        hidden: Units of each of the two hidden layers.
        alpha2: Monge's weights tried in figure 4.
        batch_size: Images of a batch.
        num_burn: Iterations of burn-in.
        thinning: Iterations between draws.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    epochs: int = 400
    data: str = "mnist"
    hidden: tuple[int, ...] = published.HIDDEN
    alpha2: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0, 1.5)
    batch_size: int = 100
    num_burn: int = 1000
    thinning: int = 100


def pieces(config: Config) -> list[Labels]:
    """The tables, the smallest network first; figure 4 and variants of Monge's and Shampoo's metric; starts; times."""
    labels: list[Labels] = []
    for hidden in config.hidden:
        for prior in published.PRIORS:
            setting = {"hidden": hidden, "prior": prior, "epochs": config.epochs}
            rates = _rates(setting)
            for seed in config.seeds:
                for metric in (m for m in published.METRICS if m in rates):
                    alpha2 = _alpha2(setting) if metric == "Monge" else None
                    labels.append(setting | {"metric": metric, "alpha2": alpha2, "seed": seed})
    setting = {"hidden": config.hidden[0], "prior": SWEEP, "epochs": config.epochs}
    for seed in config.seeds:
        for alpha2 in config.alpha2:
            labels.append(setting | {"metric": "Monge", "alpha2": alpha2, "seed": seed})
        for alpha2, rate in FASTER.items():
            labels.append(setting | {"metric": "Monge", "alpha2": alpha2, "rate": rate, "seed": seed})
        for metric in (FULL, AVERAGED, LAGGED):
            labels.append(setting | {"metric": metric, "alpha2": _alpha2(setting), "seed": seed})
    for prior in published.PRIORS:
        for metric in (FORMULAS, WHOLE):
            labels.append(setting | {"prior": prior, "metric": metric, "alpha2": None, "seed": config.seeds[0]})
    for prior, starts in OTHER_STARTS.items():
        for start in starts:
            setting = {"hidden": config.hidden[0], "prior": prior, "epochs": config.epochs, "start": start}
            for metric in (m for m in published.METRICS if m in _rates(setting)):
                alpha2 = _alpha2(setting) if metric == "Monge" else None
                labels.append(setting | {"metric": metric, "alpha2": alpha2, "seed": config.seeds[0]})
    for hidden in (n for n in config.hidden if n in published.HIDDEN):
        for prior in published.PRIORS:
            setting = {"hidden": hidden, "prior": prior, "epochs": TIMED_EPOCHS}
            for metric in (*published.METRICS, *ADDED):
                if _printed(metric) in _rates(setting):
                    alpha2 = _alpha2(setting) if _printed(metric) == "Monge" else None
                    labels.append(setting | {"metric": metric, "alpha2": alpha2, "seed": 0})
    return labels


def _published(setting: Labels) -> tuple[str, int]:
    """The setting of the paper that is nearest; smoke runs have other sizes."""
    hidden = min(published.HIDDEN, key=lambda n: abs(n - setting["hidden"]))
    return setting["prior"], hidden


def _printed(metric: str) -> str:
    """The metric of the paper that an addition varies, whose settings it shares."""
    return ADDED.get(metric, metric)


def _rates(setting: Labels) -> dict[str, float]:
    return published.LEARNING_RATES[_published(setting)]


def _alpha2(setting: Labels) -> float:
    return published.ALPHA2[_published(setting)]


def measure_seeds(config: Config, labels: Labels, seeds: tuple[int, ...], folder: Path) -> list[Figures]:
    """Runs of one setting."""
    images = classifiers.load(config.data, num_train=NUM_TRAIN)
    hidden, metric = labels["hidden"], labels["metric"]
    prior = gx.nn.Gaussian() if labels["prior"] == "gaussian" else gx.nn.HierarchicalHorseshoe()
    num_an_epoch = len(images.train) // config.batch_size
    rate = labels.get("rate") or _rates(labels)[_printed(metric)]
    starts = {None: STARTS[labels["prior"]]} | OTHER_STARTS[labels["prior"]]
    biases = labels.get("biases") or starts[labels.get("start")]

    def network(key: jax.Array) -> gx.nn.MLP:
        return gx.nn.MLP(784, 10, widths=(hidden, hidden), key=key)

    found = run_sgrld(
        images,
        lambda key: drawn(key, network, biases=biases),
        gx.nn.Priors([("*", prior)]),
        metric_of(metric, labels["alpha2"], num_an_epoch),
        learning_rate=rate,
        seeds=seeds,
        epochs=labels["epochs"],
        batch_size=config.batch_size,
        num_burn=config.num_burn,
        thinning=config.thinning,
        folder=folder,
    )
    return [figures | {"learning_rate": rate} for figures in found]


def rows_of(record: Record, hidden: int, prior: str, metric: str, **labels: Any) -> list[dict]:
    """The longest runs there are of a setting, at the paper's alpha^2 and learning rate unless others are named.

    Where there is none from the prior's own start, those from others.
    """
    if _printed(metric) == "Monge" and "alpha2" not in labels:
        if ("gaussian", hidden) not in published.ALPHA2 and prior == "gaussian":
            return []
        labels["alpha2"] = _alpha2({"hidden": hidden, "prior": prior})
    wanted = {"hidden": hidden, "prior": prior, "metric": metric, "rate": None} | labels
    rows = []
    for start in (None, *OTHER_STARTS[prior]):
        note = {} if start is None else {"note": start}
        rows = rows or [row | note for row in record.rows(**wanted, start=start) if row["epochs"] != TIMED_EPOCHS]
    longest = max((row["epochs"] for row in rows), default=0)
    return [row for row in rows if row["epochs"] == longest]


def seconds_of(record: Record, hidden: int, prior: str, metric: str) -> float | None:
    """Seconds an epoch in the runs that were made to be timed."""
    rows = record.rows(hidden=hidden, prior=prior, metric=metric, epochs=TIMED_EPOCHS, start=None)
    return rows[0]["cpu_seconds"] if rows else None


def cell(rows: list[dict], name: str, digits: int) -> str:
    """Mean and standard deviation over runs, with what must be known of them."""
    if not rows:
        return "not run"
    rows = [row for row in rows if name in row]
    if not rows:
        return "not measured"
    values = np.asarray([row[name] for row in rows if row[name] is not None], np.float64)
    notes = [rows[0]["note"]] if "note" in rows[0] else []
    if rows[0]["epochs"] != 400:
        notes.append(f"{rows[0]['epochs']} epochs")
    if len(values) < len(rows):
        notes.append(f"{len(rows) - len(values)} of {len(rows)} runs diverged")
    text = "–"
    if len(values):
        text = f"{values.mean():.{digits}f}"
        text += f" ± {values.std(ddof=1):.{digits}f} ({len(values)})" if len(values) > 1 else " (1)"
    return f"{text}, {', '.join(notes)}" if notes else text


def _is_identity(prior: str, hidden: int, metric: str) -> bool:
    """Whether the paper found no weight of Monge's metric that is better than none."""
    return _printed(metric) == "Monge" and "Monge" not in published.LEARNING_RATES.get((prior, hidden), {})


def scores_table(name: str, printed: dict, digits: int = 4):
    """One score, both priors, ours beside the paper's."""

    def render(record: Record) -> str:
        lines = []
        for hidden in record.config["hidden"]:
            for metric in (*published.METRICS, *ADDED):
                found = {prior: rows_of(record, hidden, prior, metric) for prior in published.PRIORS}
                if metric in ADDED and not any(found.values()):
                    continue
                line = [f"{hidden}, {metric}"]
                for prior, rows in found.items():
                    theirs = printed.get((prior, hidden), {}).get(metric)
                    ours = cell(rows, name, digits)
                    line += _IDENTITY if _is_identity(prior, hidden, metric) else [ours, paper(theirs, digits)]
                lines.append(line)
        titles = [text for prior in published.PRIORS for text in (_TITLES[prior], "paper")]
        return table(["N, metric", *titles], lines)

    return render


def paper(printed: Any, digits: int) -> str:
    """What the paper prints: a mean with its standard deviation, or a number."""
    if printed is None:
        return ""
    if isinstance(printed, tuple):
        return f"{printed[0]:.{digits}f} ± {printed[1]:.{digits}f}"
    return number(printed)


def equal_time(rows: list[dict], share: float) -> list[dict]:
    """The ensembles at the epoch that runs reach in a share of their time, from the looks taken on the way."""
    found = []
    for row in rows:
        reached = [i for i, epoch in enumerate(row["curve_epochs"]) if epoch <= row["epochs"] * share + 1e-9]
        values = {name: row[f"curve_{name}"][reached[-1]] if reached else None for name in ("log_p", "accuracy")}
        found.append({name: row[name] for name in ("epochs", "note") if name in row} | values)
    return found


def equal_time_table(name: str, printed: dict):
    """One score when every metric has the time of the fastest (table 6)."""

    def render(record: Record) -> str:
        lines = []
        for hidden in record.config["hidden"]:
            seconds = {
                (prior, metric): seconds_of(record, hidden, prior, metric)
                for prior in published.PRIORS
                for metric in published.METRICS
            }
            for metric in published.METRICS:
                line = [f"{hidden}, {metric}"]
                for prior in published.PRIORS:
                    theirs = printed.get((prior, hidden), {}).get(metric)
                    rows, own = rows_of(record, hidden, prior, metric), seconds[prior, metric]
                    fastest = min((s for (of, _), s in seconds.items() if of == prior and s), default=None)
                    ours = cell(equal_time(rows, fastest / own), name, 4) if rows and own and fastest else "not run"
                    line += _IDENTITY if _is_identity(prior, hidden, metric) else [ours, paper(theirs, 4)]
                lines.append(line)
        titles = [text for prior in published.PRIORS for text in (_TITLES[prior], "paper")]
        return table(["N, metric", *titles], lines)

    return render


def seconds_table(record: Record) -> str:
    """Seconds of the processor an epoch, and relative to the identity (table 2)."""

    def text(seconds: float | None, identity: float | None) -> str:
        ratio = f" ({seconds / identity:.2f})" if seconds and identity else ""
        return f"{seconds:.2f}{ratio}" if seconds else "not run"

    lines = []
    for hidden in record.config["hidden"]:
        for metric in (*published.METRICS, *ADDED):
            line = [f"{hidden}, {metric}"]
            for prior in published.PRIORS:
                theirs = published.SECONDS.get((prior, hidden), {})
                ours = text(*(seconds_of(record, hidden, prior, name) for name in (metric, "Identity")))
                printed = text(theirs.get(metric), theirs.get("Identity")) if metric in theirs else ""
                line += _IDENTITY if _is_identity(prior, hidden, metric) else [ours, printed]
            lines.append(line)
    titles = [text for prior in published.PRIORS for text in (_TITLES[prior], "paper")]
    return table(["N, metric", *titles], lines)


def confidence_table(record: Record) -> str:
    """Table 10."""
    hidden = record.config["hidden"][0]
    lines = [
        [metric, cell(rows_of(record, hidden, "horseshoe", metric), "confidence", 4), f"{theirs:.4f}"]
        for metric, theirs in published.CONFIDENCE.items()
    ]
    return table(["metric", "mean confidence", "paper"], lines)


def starts_table(record: Record) -> str:
    """What other starts of the biases do."""
    hidden = record.config["hidden"][0]
    printed_at = min(published.HIDDEN, key=lambda n: abs(n - hidden))
    lines = []
    for prior, starts in OTHER_STARTS.items():
        for metric in published.METRICS:
            if _is_identity(prior, printed_at, metric):
                continue
            line = []
            alpha2 = {"alpha2": _alpha2({"hidden": hidden, "prior": prior})} if metric == "Monge" else {}
            for label in (None, *starts):
                rows = record.rows(hidden=hidden, prior=prior, metric=metric, start=label, **alpha2)
                line.append(cell([row for row in rows if row["epochs"] != TIMED_EPOCHS], "log_p", 4))
            theirs = paper(published.LOG_P[prior, printed_at][metric], 4)
            kinds = (STARTS[prior], *starts.values())
            lines += [
                [f"{_TITLES[prior]}, {metric}, biases {kind}", found, theirs]
                for kind, found in zip(kinds, line, strict=True)
            ]
    return table(["", "log p(y|X)", "paper"], lines)


def convergence_picture(record: Record) -> "Figure":
    """Figure 3: scores of the ensemble so far against epochs, N = 400, horseshoe."""
    figure, axes = panels(2, 1, height=2.6)
    for colour, metric in zip(SERIES, published.METRICS, strict=False):
        rows = [r for r in rows_of(record, record.config["hidden"][0], "horseshoe", metric) if r["log_p"] is not None]
        for ax, name in zip(axes[:, 0], ("curve_log_p", "curve_accuracy"), strict=True):
            if rows:
                _band(ax, rows[0]["curve_epochs"], np.asarray([row[name] for row in rows], float), colour, metric)
    for ax, title in zip(axes[:, 0], ("log p(y | X)", "accuracy"), strict=True):
        ax.set_ylabel(title, fontsize=9)
        ax.set_xlabel("epoch", fontsize=9)
    axes[0, 0].set_ylim(bottom=-0.16)
    axes[1, 0].set_ylim(bottom=0.955)
    if axes[0, 0].has_data():
        axes[1, 0].legend(frameon=False, fontsize=8, ncols=5, loc="lower right")
    return figure


def alpha2_picture(record: Record) -> "Figure":
    """Figure 4: scores in the Monge metric against alpha^2, ours and in print, with the other metrics as lines."""
    figure, axes = panels(1, 2, height=3.0)
    hidden = record.config["hidden"][0]
    own_rate = published.LEARNING_RATES[_published({"hidden": hidden, "prior": SWEEP})]["Monge"]
    sweep = [row for row in record.rows(metric="Monge", prior=SWEEP, hidden=hidden) if row["epochs"] != TIMED_EPOCHS]
    settings = sorted({(row["alpha2"], row.get("rate")) for row in sweep}, key=lambda s: (s[0], s[1] or 0.0))
    found = [rows_of(record, hidden, SWEEP, "Monge", alpha2=alpha2, rate=rate) for alpha2, rate in settings]
    found.append([row | {"alpha2": 0.0} for row in rows_of(record, hidden, SWEEP, "Identity")])
    rows = [row for group in found for row in group if row["log_p"] is not None]
    longest = max((row["epochs"] for row in rows), default=0)
    rows = [row for row in rows if row["epochs"] == longest]
    rates = sorted({used for used, *_ in published.SWEEP.values()} | {row.get("rate") or own_rate for row in rows})
    titles = ("log p(y | X)", "accuracy")
    for i, (ax, name, title) in enumerate(zip(axes[0], ("log_p", "accuracy"), titles, strict=True)):
        for rate, marker in zip(rates, "os", strict=False):
            mine = [row for row in rows if (row.get("rate") or own_rate) == rate]
            weights = sorted({row["alpha2"] for row in mine})
            means = [np.mean([row[name] for row in mine if row["alpha2"] == a]) for a in weights]
            style = {"color": SERIES[3], "markersize": 3, "alpha": 0.6, "label": f"Monge, rate {rate:g}"}
            ax.plot([r["alpha2"] for r in mine], [r[name] for r in mine], marker, **style)
            ax.plot(weights, means, "-" if rate == own_rate else ":", color=SERIES[3], linewidth=1.2)
            printed = {a: scores[i] for a, (used, *scores) in published.SWEEP.items() if used == rate}
            if longest == 400 and printed:
                style = {"color": SERIES[5], "markersize": 3.5, "linewidth": 0.8, "capsize": 2, "mfc": "none"}
                values, spreads = zip(*printed.values(), strict=True)
                ax.errorbar(list(printed), values, spreads, fmt=marker, label=f"in print, rate {rate:g}", **style)
        for colour, metric in zip(SERIES, published.METRICS, strict=False):
            others = [r[name] for r in rows_of(record, hidden, "horseshoe", metric) if r[name] is not None]
            if metric != "Monge" and others:
                ax.axhline(np.mean(others), color=colour, linewidth=1.0, linestyle="--", label=metric)
        ax.set_xlabel("α²", fontsize=9)
        ax.set_ylabel(title, fontsize=9)
    if rows:
        axes[0, 1].legend(fontsize=8, framealpha=1.0, edgecolor="none", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _band(ax: Any, epochs: list, values: np.ndarray, colour: str, name: str) -> None:
    mean = values.mean(axis=0)
    ax.plot(epochs, mean, color=colour, linewidth=1.2, label=name)
    if len(values) > 1:
        half = 1.96 * values.std(axis=0, ddof=1)
        ax.fill_between(epochs, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0)


EXPERIMENT = Experiment(
    name="sgrld/tables_1_2",
    config=Config(),
    smoke=Config(
        seeds=(0,),
        epochs=3,
        data="simulated-mnist",
        hidden=(8,),
        alpha2=(0.5,),
        batch_size=20,
        num_burn=10,
        thinning=5,
    ),
    pieces=pieces,
    measure_seeds=measure_seeds,
    may_change=("seeds", "epochs"),
    double=False,
    tables={
        "log-p": scores_table("log_p", published.LOG_P),
        "accuracy": scores_table("accuracy", published.ACCURACY),
        "curvature": scores_table("curvature", {}, 2),
        "softened-curvature": scores_table("softened_curvature", published.CURVATURE, 2),
        "seconds": seconds_table,
        "equal-time-log-p": equal_time_table("log_p", published.EQUAL_TIME_LOG_P),
        "equal-time-accuracy": equal_time_table("accuracy", published.EQUAL_TIME_ACCURACY),
        "ece": scores_table("ece", published.ECE),
        "confidence": confidence_table,
        "starts": starts_table,
    },
    pictures={"convergence": convergence_picture, "alpha2": alpha2_picture},
)

if __name__ == "__main__":
    main(EXPERIMENT)
