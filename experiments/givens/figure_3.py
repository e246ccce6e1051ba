"""Figure 3 of Pourzanjani et al. (2021): a ReLU network with free weights and with unit vectors, by NUTS and by VI.

python -m experiments.givens.figure_3 [--smoke]

The paper gives neither data nor priors nor the size of its network. Here two hidden units see two inputs; the biases
are outside the unit vectors, as in the paper. All chains start at the parameters that made the data, and the guides
there too, so that they are in one of the copies that differ in the names of the units.
"""

import dataclasses
from typing import Any

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoDiagonalNormal, AutoIAFNormal, AutoMultivariateNormal
from numpyro.infer.util import log_density

from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import INK, number, panels, spread, table
from experiments.givens.regions import contours
from geodax.diagnostics.findings import ess, rhat
from geodax.interop import numpyro as gxn

GUIDES = {"mean field": AutoDiagonalNormal, "full rank": AutoMultivariateNormal, "flow": AutoIAFNormal}
SAMPLERS = {"free": ("NUTS",), "unit": ("NUTS", "NUTS on the sphere")}
SIDES = {"free": "free weights", "unit": "unit vectors, Givens angle"}
ANGLES = (0.7, -1.2)
BIASES = (0.3, -0.2)
OUTPUTS = (1.5, -1.0)
INTERCEPT, NOISE = 0.1, 0.3
PLACES = np.array([[0.0, 0.0], [1.0, 1.0], [-1.0, 1.0], [1.5, -1.5]])


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: A data set, with its chains and guides, each.
        guides: Names of the guides.
        num_rows: Rows of a data set.
        num_chains: Chains.
        num_warmup: Warm-up iterations.
        num_samples: Draws of each chain.
        num_steps: Steps of the optimiser of each guide.
        num_particles: Draws for each of them.
        num_draws: Draws of a guide.
        num_shown: Draws of chains and guides that are kept for the picture.
        weight_scale: Prior standard deviation of free weights.
        output_scale: Prior standard deviation of output weights times the root of the number of units.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    guides: tuple[str, ...] = ("mean field", "full rank", "flow")
    num_rows: int = 100
    num_chains: int = 4
    num_warmup: int = 1000
    num_samples: int = 2000
    num_steps: int = 10_000
    num_particles: int = 10
    num_draws: int = 20_000
    num_shown: int = 1000
    weight_scale: float = 1.0
    output_scale: float = 3.0


def pieces(config: Config) -> list[Labels]:
    """The samplers and the guides of both parametrisations."""
    return [
        {"weights": weights, "method": method, "seed": seed}
        for seed in config.seeds
        for weights, samplers in SAMPLERS.items()
        for method in (*samplers, *config.guides)
    ]


def measure(config: Config, labels: Labels) -> Figures:
    """Means and standard deviations of weights and of what is identified, and how well the method did."""
    data = _data(config, labels["seed"])
    options = {
        "num_hidden": 2,
        "weights": labels["weights"],
        "bias": "separate",
        "weight_scale": config.weight_scale,
        "output_scale": config.output_scale,
    }
    key = jax.random.key(labels["seed"])
    if labels["method"] in GUIDES:
        draws, figures = _guide(config, labels, data, options, key)
    else:
        draws, figures = _chains(config, labels, data, options, key)
    values = quantities(draws)
    flat = {name: np.asarray(value).reshape(-1) for name, value in values.items()}
    if "chain" in figures:
        gradients = figures.pop("chain")
        figures |= {
            "rhat": max(float(rhat(value)) for value in values.values()),
            "ess": {name: float(ess(value)) / gradients * 1000 for name, value in values.items()},
        }
    shown = np.linspace(0, len(flat["weight"]) - 1, min(config.num_shown, len(flat["weight"]))).astype(int)
    return figures | {
        "mean": {name: float(value.mean()) for name, value in flat.items()},
        "sd": {name: float(value.std()) for name, value in flat.items()},
        "draws": {name: np.round(flat[name][shown], 4) for name in ("weight", "angle", "output")}
        if labels["seed"] == config.seeds[0]
        else {},
    }


def quantities(draws: dict[str, Any]) -> dict[str, np.ndarray]:
    """Numbers of draws with any leading axes: W1[1,1], W2[1], angle and slope of the first unit, the function's values.

    Args:
        draws: Sites of the model, ``units`` in either form.

    Returns:
        By name; all but ``weight`` and ``output`` do not see the scales of the units.
    """
    units, output, bias = (np.asarray(draws[name], np.float64) for name in ("weights", "output", "bias"))
    hidden = np.maximum(0.0, np.einsum("pk,...hk->...hp", PLACES, units) + bias[..., None])
    function = np.einsum("...hp,...h->...p", hidden, output) + np.asarray(draws["intercept"])[..., None]
    return {
        "weight": units[..., 0, 0],
        "output": output[..., 0],
        "angle": np.arctan2(units[..., 0, 1], units[..., 0, 0]),
        "slope": output[..., 0] * np.linalg.norm(units[..., 0, :], axis=-1),
        **{f"function {k + 1}": function[..., k] for k in range(len(PLACES))},
    }


def _data(config: Config, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((config.num_rows, 2))
    hidden = np.maximum(0.0, x @ _truth()["units"].T + np.asarray(BIASES))
    return x, hidden @ np.asarray(OUTPUTS) + INTERCEPT + NOISE * generator.standard_normal(config.num_rows)


def _truth() -> dict[str, np.ndarray]:
    return {
        "units": np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1),
        "bias": np.asarray(BIASES),
        "output": np.asarray(OUTPUTS),
        "intercept": np.asarray(INTERCEPT),
        "noise": np.asarray(NOISE),
    }


def _start(weights: str) -> Any:
    values = {name: jnp.asarray(value) for name, value in _truth().items()}
    if weights == "unit":
        values["units"] = values["units"][..., None]
    return init_to_value(values=values)


def _chains(config: Config, labels: Labels, data: Any, options: dict, key: Any) -> tuple[dict, Figures]:
    sizes = {name: getattr(config, name) for name in ("num_warmup", "num_samples", "num_chains")}
    if labels["method"] == "NUTS":
        kernel = NUTS(gxn.unit_network, init_strategy=_start(labels["weights"]), target_accept_prob=0.9)
        run = MCMC(kernel, **sizes, chain_method="vectorized", progress_bar=False)
        run.run(key, *data, extra_fields=("num_steps", "diverging"), **options)
        draws = run.get_samples(group_by_chain=True)
        fields = run.get_extra_fields()
        gradients, divergences = int(fields["num_steps"].sum()), int(fields["diverging"].sum())
    else:
        tree = gxn.sample(
            gxn.unit_network,
            model_args=data,
            model_kwargs=options,
            rng_key=key,
            init_strategy=_start(labels["weights"]),
            sampler_options={"target_acceptance_rate": 0.9},
            progress=False,
            **sizes,
        )
        draws = {name: value.values for name, value in tree["posterior"].data_vars.items()}
        stats = tree["sample_stats"]
        gradients, divergences = int(np.sum(stats["n_steps"])), int(np.sum(stats["diverging"]))
    total = config.num_chains * config.num_samples
    return draws, {"chain": gradients, "divergences": divergences, "gradients_a_draw": gradients / total}


def _guide(config: Config, labels: Labels, data: Any, options: dict, key: Any) -> tuple[dict, Figures]:
    guide = GUIDES[labels["method"]](gxn.unit_network, init_loc_fn=_start(labels["weights"]))
    schedule = optax.cosine_decay_schedule(0.01, config.num_steps)
    svi = SVI(gxn.unit_network, guide, optax.adam(schedule), Trace_ELBO(num_particles=config.num_particles))
    key_run, key_weights, key_draws = jax.random.split(key, 3)
    params = svi.run(key_run, config.num_steps, *data, progress_bar=False, **options).params

    def log_ratio(key: Any) -> Any:
        log_guide, trace = log_density(numpyro.handlers.seed(guide, key), data, options, params)
        replayed = numpyro.handlers.seed(numpyro.handlers.replay(gxn.unit_network, trace), 0)
        return log_density(replayed, data, options, {})[0] - log_guide

    ratios = np.asarray(jax.jit(jax.vmap(log_ratio))(jax.random.split(key_weights, config.num_draws)))
    draws = guide.sample_posterior(key_draws, params, sample_shape=(config.num_draws,))
    units = draws["units"][..., 0] if labels["weights"] == "unit" else draws["units"]
    return draws | {"weights": units}, {
        "elbo": float(ratios.mean()),
        "log_evidence": float(np.logaddexp.reduce(ratios) - np.log(len(ratios))),
        "khat": _pareto_k(ratios),
    }


def _pareto_k(log_ratios: np.ndarray) -> float:
    """The shape of the generalised Pareto distribution of the largest importance ratios."""
    if "psislw" in vars(arviz):  # ArviZ 0.23
        return float(arviz.psislw(log_ratios)[1])
    from arviz_stats.base import array_stats

    return float(array_stats.psislw(-log_ratios)[1])


def chains(record: Record) -> str:
    """How well NUTS does in each parametrisation."""
    rows = []
    for weights, samplers in SAMPLERS.items():
        for method in samplers:
            found = record.rows(weights=weights, method=method)
            identified = [min(v for name, v in row["ess"].items() if name not in ("weight", "output")) for row in found]
            rows.append(
                [
                    SIDES[weights] if method == "NUTS" else "unit vectors, on the sphere",
                    spread([row["gradients_a_draw"] for row in found]),
                    spread([min(row["ess"]["weight"], row["ess"]["output"]) for row in found]),
                    spread(identified),
                    number(max(row["rhat"] for row in found), 4),
                    f"{sum(row['divergences'] for row in found)}",
                ]
            )
    header = ["NUTS with", "gradients a draw", "ESS of $W_1[1,1]$, $W_2[1]$", "ESS of what is identified"]
    return table([*header, "largest R-hat", "divergences"], rows)


def guides(record: Record) -> str:
    """What variational inference makes of the posterior: distance, and standard deviations over those of NUTS."""
    rows = []
    for weights in SAMPLERS:
        for method in record.config["guides"]:
            found = record.rows(weights=weights, method=method)
            ratios: dict[str, list[float]] = {"axis": [], "output": [], "slope": [], "function": []}
            gaps = []
            for row in found:
                same = {"weights": weights, "seed": row["seed"]}
                exact = record.row(**same, method="NUTS")["sd"]
                best = min((record.row(**same, method=m) for m in record.config["guides"]), key=lambda r: r["khat"])
                gaps.append(best["log_evidence"] - row["elbo"])
                ratio = {name: row["sd"][name] / exact[name] for name in exact}
                ratios["axis"].append(ratio["weight" if weights == "free" else "angle"])
                ratios["output"].append(ratio["output"])
                ratios["slope"].append(ratio["slope"])
                ratios["function"].append(float(np.mean([v for k, v in ratio.items() if k.startswith("function")])))
            rows.append(
                [
                    f"{SIDES[weights]}: {method}",
                    spread(gaps, 2),
                    spread([row["khat"] for row in found], 2),
                    *(spread(values, 2) for values in ratios.values()),
                ]
            )
    header = ["guide", "KL to the posterior", "k-hat", "$W_1[1,1]$ or angle", "$W_2[1]$", "slope of unit 1", "function"]
    return table(header, rows)


def picture(record: Record):
    """Draws of NUTS with regions of the guides: free weights left, the angle right."""
    seed = record.config["seeds"][0]
    figure, axes = panels(1, 2, height=3.8)
    for ax, weights in zip(axes[0], SAMPLERS, strict=True):
        axis = "weight" if weights == "free" else "angle"
        exact = record.row(weights=weights, method="NUTS", seed=seed)["draws"]
        ax.plot(exact[axis], exact["output"], ".", color="#9aa5b1", markersize=2.6, markeredgewidth=0, label="NUTS")
        for method, colour in zip(record.config["guides"][:2], ("#c05621", "#2b6cb0"), strict=False):
            drawn = record.row(weights=weights, method=method, seed=seed)["draws"]
            contours(ax, np.asarray(drawn[axis]), np.asarray(drawn["output"]), (0.5, 0.9), colour)
            ax.plot([], [], color=colour, label=f"VI, {method}: 50 % and 90 %")
        ax.set_xlabel("$W_1[1,1]$" if weights == "free" else "Givens angle of unit 1", fontsize=9, color=INK)
        ax.set_ylabel("$W_2[1]$", fontsize=9, color=INK)
        ax.set_title(SIDES[weights], fontsize=9, loc="left", color=INK)
        ax.legend(fontsize=7, frameon=False, labelcolor=INK)
    return figure


EXPERIMENT = Experiment(
    name="givens/figure_3",
    config=Config(),
    smoke=Config(
        seeds=(0,),
        guides=("mean field",),
        num_rows=30,
        num_chains=2,
        num_warmup=60,
        num_samples=60,
        num_steps=100,
        num_draws=400,
    ),
    pieces=pieces,
    measure=measure,
    tables={"chains": chains, "guides": guides},
    pictures={"posterior": picture},
)

if __name__ == "__main__":
    main(EXPERIMENT)
