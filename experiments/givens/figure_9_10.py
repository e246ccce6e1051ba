"""Figures 9 and 10 of Pourzanjani et al. (2021): hidden states of the contacts in a primary school.

python -m experiments.givens.figure_9_10 [--smoke]

The paper speaks of twelve classes, two for each of six grades, and of one day. The published set has ten classes of five
grades and the teachers, over two days; windows of eleven minutes from its first contact to its last, the night
included, are the paper's 177. The rank of the rate matrices is not in the paper; two columns are shown. Beside the
paper's model stands one that fits: negative binomial counts, intercepts, and the rank of ``network_choice``.
"""

import dataclasses
from typing import Any

import numpy as np

from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import number, table
from experiments.givens import contact_pictures
from experiments.givens.contact_windows import counted, state_name
from geodax.diagnostics.findings import ess, rhat
from geodax.models import NetworkHMM

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: One run of several chains for each model.
        data: "primary-school", or "simulated" counts that need no file.
        minutes: Length of a window.
        n_states: Hidden states.
        rank: Columns of each orthonormal matrix in the paper's model.
        other_rank: Columns of each orthonormal matrix in the model with negative binomial counts and intercepts.
        other_eigenvalue_scale: Prior standard deviation of that model's eigenvalues over the number of classes.
        num_starts: Partitions from which modes are sought.
        num_chains: Chains of a run.
        num_warmup: Warm-up iterations.
        num_samples: Draws of each chain.
    """

    seeds: tuple[int, ...] = (0,)
    data: str = "primary-school"
    minutes: float = 11.0
    n_states: int = 3
    rank: int = 2
    other_rank: int = 2
    other_eigenvalue_scale: float = 1.0
    num_starts: int = 40
    num_chains: int = 4
    num_warmup: int = 500
    num_samples: int = 500


def pieces(config: Config) -> list[Labels]:
    """A run a model and seed."""
    return [{"model": model, "seed": seed} for seed in config.seeds for model in ("paper", "better")]


def measure(config: Config, labels: Labels) -> Figures:
    """Modes, rates, vectors with intervals, probabilities of states, predictive checks, and what the chains agree on."""
    windows = counted(config.data, config.minutes)
    options: dict[str, Any] = {"rank": config.rank}
    if labels["model"] == "better":
        options = {"rank": config.other_rank, "counts": "negative-binomial", "intercept": True}
        options["eigenvalue_scale"] = config.other_eigenvalue_scale
    model = NetworkHMM(
        config.n_states,
        num_starts=config.num_starts,
        num_chains=config.num_chains,
        num_warmup=config.num_warmup,
        num_samples=config.num_samples,
        random_state=labels["seed"],
        **options,
    ).fit(windows.counts)
    return (
        {"names": list(windows.names), "hours": np.round(windows.starts / 3600, 4)}
        | _states(model, windows.counts)
        | _modes(model)
        | _predictions(model, windows.counts)
        | _agreement(model)
    )


def _states(model: NetworkHMM, counts: np.ndarray) -> Figures:
    probabilities, draws = model.state_probabilities_, model.draws(None)
    theta = model.modes_[0].theta
    form = np.einsum("kip,kp,kjp->kij", theta.vectors, theta.eigenvalues, theta.vectors)
    totals = counts.sum(axis=(1, 2))
    shown = [int(np.argmax(probabilities[:, k] * (1 + totals / totals.sum()))) for k in range(model.n_states)]
    return {
        "mode_rates": np.round(np.exp(form + np.asarray(theta.intercept)[:, None, None]), 4),
        "mean_rates": np.round(model.rates_, 4),
        "examples": shown,
        "example_counts": counts[shown].astype(int),
        "vector_quantiles": np.round(np.quantile(draws.vectors[..., :2], QUANTILES, axis=0), 4),
        "eigenvalue_quantiles": np.round(np.quantile(draws.eigenvalues, QUANTILES, axis=0), 3),
        "dispersion_quantiles": np.round(np.quantile(draws.dispersion, QUANTILES, axis=0), 3),
        "transition": np.round(model.transition_, 4),
        "probabilities": np.round(probabilities, 4),
        "state_draws": model.sample_states(counts)[::20].astype(int),
    }


def _modes(model: NetworkHMM) -> Figures:
    first = model.modes_[0]
    return {
        "modes": [
            {
                "log_density": round(mode.log_density, 2),
                "below_the_first": round(first.log_density - mode.log_density, 2),
                "num_starts": mode.num_starts,
                "windows": np.bincount(mode.probabilities.argmax(axis=1), minlength=model.n_states),
                "windows_elsewhere": int((mode.probabilities.argmax(1) != first.probabilities.argmax(1)).sum()),
            }
            for mode in model.modes_[:10]
        ],
        "num_modes": len(model.modes_),
        "num_partitions": sum(mode.num_starts for mode in model.modes_),
    }


def _predictions(model: NetworkHMM, counts: np.ndarray) -> Figures:
    """Whether windows' totals, and counts of pairs, lie in 90 % predictive intervals."""
    rows, columns = np.triu_indices(counts.shape[1])
    drawn, actual = model.sample_counts(counts)[:, :, rows, columns], counts[:, rows, columns]
    has_contacts = actual.sum(axis=1) > 0
    inside = {}
    for name, replicates, values in (
        ("totals", drawn.sum(axis=2), actual.sum(axis=1)),
        ("pairs", drawn, actual),
    ):
        low, high = np.quantile(replicates, [0.05, 0.95], axis=0)
        is_inside = (low <= values) & (values <= high)
        inside[f"{name}_inside"] = float(is_inside.mean())
        inside[f"{name}_inside_with_contacts"] = float(is_inside[has_contacts].mean())
    return inside | {
        "totals": actual.sum(axis=1).astype(int),
        "predicted_totals": np.round(np.quantile(drawn.sum(axis=2), QUANTILES, axis=0), 1),
    }


def _agreement(model: NetworkHMM) -> Figures:
    group, stats = (model.posterior_[name] for name in ("posterior", "sample_stats"))
    vectors, eigenvalues, intercept = (group[name].values for name in ("vectors", "eigenvalues", "intercept"))
    eta = np.einsum("cdkip,cdkp,cdkjp->cdkij", vectors, eigenvalues, vectors) + intercept[..., None, None]
    rows, columns = np.triu_indices(vectors.shape[3])
    eta = eta[..., rows, columns]
    watched = {
        "log_density": stats["lp"].values,
        "log_total_rates": np.logaddexp.reduce(eta, axis=-1),
        "log_rates": eta,
        "transition": group["transition"].values,
        "eigenvalues": eigenvalues,
        "vectors": vectors,
    }
    return {
        "rhat": {name: float(np.max(rhat(values))) for name, values in watched.items()},
        "ess": {name: float(np.min(ess(values))) for name, values in watched.items()},
        "rhat_of_states": {
            name: [float(np.max(rhat(watched[name][:, :, k]))) for k in range(model.n_states)]
            for name in ("log_rates", "eigenvalues", "vectors")
        },
        "lp_of_chains": np.round(stats["lp"].values.mean(axis=1), 2),
        "divergences": int(stats["diverging"].values.sum()),
        "steps_a_draw": float(stats["n_steps"].values.mean()),
        "sampling_seconds": float(model.posterior_.attrs["sampling_seconds"]),
    }


def checks(record: Record) -> str:
    """What the runs say of themselves."""
    rows = []
    for row in record.rows():
        of = [f"{number(row['rhat'][name], 4)} ({number(row['ess'][name])})" for name in row["rhat"]]
        rows.append([_title(row), *of, str(row["divergences"]), number(row["sampling_seconds"])])
    names = [name.replace("_", " ") for name in record.rows()[0]["rhat"]]
    return table(["model", *(f"{name}: R-hat (ESS)" for name in names), "divergences", "seconds"], rows)


def coverage(record: Record) -> str:
    """How many window totals and counts of pairs lie in their 90 % predictive intervals."""
    names = ("totals_inside", "totals_inside_with_contacts", "pairs_inside", "pairs_inside_with_contacts")
    rows = [[_title(row), *(f"{100 * row[name]:.0f} %" for name in names)] for row in record.rows()]
    header = ["window totals, all", "window totals, with contacts", "counts of pairs, all", "with contacts"]
    return table(["model", *header], rows)


def modes(record: Record) -> str:
    """The modes that were found before sampling."""
    rows = [
        [
            _title(row),
            "highest" if i == 0 else f"{mode['below_the_first']:,.1f} lower",
            f"{mode['num_starts']} of {row['num_partitions']}",
            ", ".join(map(str, mode["windows"])),
            str(mode["windows_elsewhere"]),
        ]
        for row in record.rows(seed=record.config["seeds"][0])
        for i, mode in enumerate(row["modes"][:5])
    ]
    return table(["model", "log density", "starts that came there", "windows in the states", "of them elsewhere"], rows)


def states(record: Record) -> str:
    """How long the network is in each state, and how it moves."""
    rows = []
    for row in record.rows(seed=record.config["seeds"][0]):
        probabilities, transition = np.asarray(row["probabilities"]), np.asarray(row["transition"])
        rates = np.asarray(row["mean_rates"])
        upper = np.triu_indices(rates.shape[1])
        rows += [
            [_title(row), state_name(k, len(rates)), f"{probabilities[:, k].sum():.1f}", number(rates[k][upper].sum())]
            + [number(p) for p in transition[k]]
            for k in range(len(rates))
        ]
    moves = [f"to {state_name(k, record.config['n_states'])}" for k in range(record.config["n_states"])]
    return table(["model", "state", "expected windows", "contacts a window", *moves], rows)


def _title(row: dict[str, Any]) -> str:
    return contact_pictures.TITLES[row["model"]]


def _of(model: str, draw):
    return lambda record: draw(record.row(model=model, seed=record.config["seeds"][0]))


EXPERIMENT = Experiment(
    name="givens/figure_9_10",
    config=Config(),
    smoke=Config(
        data="simulated", n_states=2, rank=1, other_rank=1, num_starts=2, num_chains=2, num_warmup=60, num_samples=40
    ),
    pieces=pieces,
    measure=measure,
    tables={"checks": checks, "coverage": coverage, "modes": modes, "states": states},
    pictures={
        "rates": _of("paper", contact_pictures.rates),
        "states": _of("paper", contact_pictures.states),
        "rates-better": _of("better", contact_pictures.rates),
        "states-better": _of("better", contact_pictures.states),
        "totals": lambda record: contact_pictures.totals(record.rows(seed=record.config["seeds"][0])),
    },
)

if __name__ == "__main__":
    main(EXPERIMENT)
