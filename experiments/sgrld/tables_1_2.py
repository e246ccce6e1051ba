"""Tables 1, 2, 6, 8, 10 and figures 3, 4 of Yu, Hartmann, Williams and Klami (2023): MNIST, dense networks 784-N-N-10.

    python -m experiments.sgrld.tables_1_2 --only hidden=400 --seeds 3        # goes on where it was stopped
    python -m experiments.sgrld.tables_1_2 --seeds 10 --together 10           # on a GPU
    python -m experiments.sgrld.tables_1_2 --only epochs=2                    # times all settings, on one machine
    python -m experiments.sgrld.tables_1_2 --only hidden=400 --epochs 20      # short runs, which the tables call so
    python -m experiments.sgrld.tables_1_2 --smoke

The paper's learning rates, 400 epochs, batches of 100, burn-in of 1,000 iterations and an ensemble of every hundredth
draw. The paper keeps some images for validation and does not say how many; its figures point to chains on 50,000, on
which ours are made. Runs on all 60,000 stand beside them. Seconds are those of runs of two epochs of their own, one
after the other, since long runs may be spread over machines. The horseshoe has one scale an array, which is a parameter,
as in the library that the paper builds on.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

import geodax as gx
from experiments.common import classifiers
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import SERIES, number, panels, table
from experiments.sgrld import published
from experiments.sgrld.networks import drawn, metric_of, run_sgrld

ADDED = {"Monge, Γ and lag": "Monge", "Shampoo, whole matrices": "Shampoo"}  # not in the paper, and what they vary
OWN, WHOLE = ADDED
SWEEP = "horseshoe"
ALL_IMAGES, NUM_TRAIN = 60_000, 50_000
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
    """The tables, the smallest network first; figure 4, Monge's metric with its divergence; runs on all images; times."""
    labels: list[Labels] = []
    for hidden in config.hidden:
        for prior in published.PRIORS:
            setting = {"hidden": hidden, "prior": prior, "epochs": config.epochs, "num_train": NUM_TRAIN}
            rates = _rates(setting)
            for seed in config.seeds:
                for metric in (m for m in published.METRICS if m in rates):
                    alpha2 = _alpha2(setting) if metric == "Monge" else None
                    labels.append(setting | {"metric": metric, "alpha2": alpha2, "seed": seed})
    setting = {"hidden": config.hidden[0], "prior": SWEEP, "epochs": config.epochs, "num_train": NUM_TRAIN}
    for seed in config.seeds:
        for alpha2 in config.alpha2:
            labels.append(setting | {"metric": "Monge", "alpha2": alpha2, "seed": seed})
        labels.append(setting | {"metric": OWN, "alpha2": _alpha2(setting), "seed": seed})
    for prior in published.PRIORS:
        labels.append(setting | {"prior": prior, "metric": WHOLE, "alpha2": None, "seed": config.seeds[0]})
    for seed in config.seeds:
        for prior in published.PRIORS:
            setting = {"hidden": config.hidden[0], "prior": prior, "epochs": config.epochs}
            labels.append(setting | {"metric": "Identity", "alpha2": None, "seed": seed})
    for hidden in (n for n in config.hidden if n in published.HIDDEN):
        for prior in published.PRIORS:
            setting = {"hidden": hidden, "prior": prior, "epochs": TIMED_EPOCHS, "num_train": NUM_TRAIN}
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
    images = classifiers.load(config.data, num_train=labels.get("num_train"))
    hidden, metric = labels["hidden"], labels["metric"]
    law = gx.nn.Gaussian() if labels["prior"] == "gaussian" else gx.nn.HierarchicalHorseshoe()
    num_an_epoch = len(images.train) // config.batch_size
    rate = _rates(labels)[_printed(metric)]

    def network(key: jax.Array) -> gx.nn.MLP:
        return gx.nn.MLP(784, 10, widths=(hidden, hidden), key=key)

    found = run_sgrld(
        images,
        # from drawn biases Wenzel's learning rate under the horseshoe, 0.75, diverges within 20 iterations
        lambda key: drawn(key, network, with_biases=labels["prior"] == "gaussian"),
        gx.nn.Priors([("*", law)]),
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
    """The longest runs there are of a setting, at the paper's alpha^2 and number of images unless others are named.

    Where there is none on so many images, those on all.
    """
    if _printed(metric) == "Monge" and "alpha2" not in labels:
        if ("gaussian", hidden) not in published.ALPHA2 and prior == "gaussian":
            return []
        labels["alpha2"] = _alpha2({"hidden": hidden, "prior": prior})
    wanted = {"hidden": hidden, "prior": prior, "metric": metric, "num_train": NUM_TRAIN} | labels
    rows = [row for row in record.rows(**wanted) if row["epochs"] != TIMED_EPOCHS]
    if not rows:
        rows = [row | {"note": "all images"} for row in record.rows(**wanted | {"num_train": None})]
    longest = max((row["epochs"] for row in rows), default=0)
    return [row for row in rows if row["epochs"] == longest]


def seconds_of(record: Record, hidden: int, prior: str, metric: str) -> float | None:
    """Seconds an epoch in the runs that were made to be timed."""
    rows = record.rows(hidden=hidden, prior=prior, metric=metric, num_train=NUM_TRAIN, epochs=TIMED_EPOCHS)
    return rows[0]["cpu_seconds"] if rows else None


def cell(rows: list[dict], name: str, digits: int) -> str:
    """Mean and standard deviation over runs, with what must be known of them."""
    if not rows:
        return "not run"
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


def all_images_table(record: Record) -> str:
    """What the number of images that a network is trained on does to its scores."""
    hidden = record.config["hidden"][0]
    printed_at = min(published.HIDDEN, key=lambda n: abs(n - hidden))
    printed = (published.LOG_P, published.ACCURACY, published.ECE)
    lines = []
    for prior in published.PRIORS:
        for num_train, name in ((NUM_TRAIN, f"{NUM_TRAIN:,}"), (None, f"{ALL_IMAGES:,}")):
            rows = record.rows(hidden=hidden, prior=prior, metric="Identity", num_train=num_train)
            rows = [row for row in rows if row["epochs"] != TIMED_EPOCHS]
            scores = [cell(rows, "log_p", 4), cell(rows, "accuracy", 4), cell(rows, "ece", 4)]
            lines.append([f"{_TITLES[prior]}, {name} images", *scores])
        theirs = [paper(values[prior, printed_at]["Identity"], 4) for values in printed]
        lines.append([f"{_TITLES[prior]}, paper", *theirs])
    return table(["", "log p(y|X)", "accuracy", "ECE"], lines)


def convergence_picture(record: Record) -> Figure:
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


def alpha2_picture(record: Record) -> Figure:
    """Figure 4: scores in the Monge metric against alpha^2, with the other metrics as lines."""
    figure, axes = panels(1, 2, height=3.0)
    hidden = record.config["hidden"][0]
    rows = [
        row
        for alpha2 in sorted({row["alpha2"] for row in record.rows(metric="Monge")})
        for row in rows_of(record, hidden, SWEEP, "Monge", alpha2=alpha2)
        if row["log_p"] is not None
    ]
    identity = [r for r in rows_of(record, hidden, "horseshoe", "Identity") if r["log_p"] is not None]
    rows += [row | {"alpha2": 0.0} for row in identity]
    longest = max((row["epochs"] for row in rows), default=0)
    rows = [row for row in rows if row["epochs"] == longest]
    for ax, name, title in zip(axes[0], ("log_p", "accuracy"), ("log p(y | X)", "accuracy"), strict=True):
        weights = sorted({row["alpha2"] for row in rows})
        means = [np.mean([row[name] for row in rows if row["alpha2"] == a]) for a in weights]
        ax.plot([r["alpha2"] for r in rows], [r[name] for r in rows], "o", color=SERIES[3], markersize=3, alpha=0.6)
        ax.plot(weights, means, color=SERIES[3], linewidth=1.2, label="Monge")
        for colour, metric in zip(SERIES, published.METRICS, strict=False):
            others = [r[name] for r in rows_of(record, hidden, "horseshoe", metric) if r[name] is not None]
            if metric != "Monge" and others:
                ax.axhline(np.mean(others), color=colour, linewidth=1.0, linestyle="--", label=metric)
        ax.set_xlabel("α²", fontsize=9)
        ax.set_ylabel(title, fontsize=9)
    if rows:
        axes[0, 0].legend(frameon=False, fontsize=8)
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
        "curvature": scores_table("curvature", published.CURVATURE, 2),
        "seconds": seconds_table,
        "equal-time-log-p": equal_time_table("log_p", published.EQUAL_TIME_LOG_P),
        "equal-time-accuracy": equal_time_table("accuracy", published.EQUAL_TIME_ACCURACY),
        "ece": scores_table("ece", published.ECE),
        "confidence": confidence_table,
        "all-images": all_images_table,
    },
    pictures={"convergence": convergence_picture, "alpha2": alpha2_picture},
)

if __name__ == "__main__":
    main(EXPERIMENT)
