"""Text and formulas that describe the model of a network, its priors and its data."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from geodax import nn
from geodax.app.mlp.labelled import LabelledTable
from geodax.app.report.html import Report
from geodax.app.report.numbers import rounded
from geodax.data.errors import counted
from geodax.models.mlp.classifier import places_in_order
from geodax.models.mlp.regressor import COUNTS
from geodax.nn.densities import resolve_scale

_MOST_NAMED = 12  # inputs
_METHODS = {
    "mcmc": "stochastic-gradient Markov chain Monte Carlo",
    "ensemble": "a deep ensemble",
    "swag": "SWAG",
    "multi-swag": "multi-SWAG",
    "laplace": "the Laplace approximation of the last layer, with prior variance and noise by marginal likelihood",
    "whvi": "Walsh-Hadamard variational inference",
    "mean-field": "mean-field variational inference",
    "mc-dropout": "Monte Carlo dropout",
    "ivon": "improved variational online Newton",
    "noisy-kfac": "noisy K-FAC",
}

_LIKELIHOODS = {  # a sentence about the target, and a formula
    "categorical": (
        "a number for each class of {} from the inputs; their softmax are the class probabilities.",
        "P(class k | x) = exp f_k(x) / sum_j exp f_j(x)",
    ),
    "ordinal": (
        "a number from the inputs; {} is the class between whose cut points c this number plus logistic noise lies.",
        "P(at most class k | x) = 1 / (1 + exp(f(x) - c_k))",
    ),
    "gaussian": (
        "the mean of {} from the inputs; the noise is normal with one unknown standard deviation.",
        "y = f(x) + noise, Normal(0, σ²)",
    ),
    "heteroscedastic": (
        "the mean of {} from the inputs, and the logarithm of the standard deviation of its normal noise.",
        "y = f_1(x) + noise, Normal(0, exp(2 f_2(x)))",
    ),
    "student-t": (
        "the centre of {} from the inputs; the noise has a t distribution with 4 degrees of freedom.",
        "y = f(x) + σ noise, Student's t(4)",
    ),
    "log-normal": (
        "the mean of log {} from the inputs; the noise of the logarithm is normal with one unknown standard deviation.",
        "log y = f(x) + noise, Normal(0, σ²)",
    ),
    "poisson": (
        "the logarithm of the mean of {}, relative to its overall mean, from the inputs; the counts are Poisson.",
        "y ~ Poisson(m exp f(x)), m the overall mean",
    ),
    "negative-binomial": (
        "the logarithm of the mean of {}, relative to its overall mean, from the inputs; the counts are negative "
        "binomial with variance mean + α mean².",
        "y ~ NegativeBinomial(mean m exp f(x), dispersion α = σ²), m the overall mean",
    ),
}


def write_model(report: Report, model: Any, targets: Sequence[str], names: Sequence[str]) -> None:
    """Write the section on the model."""
    is_classifier = hasattr(model, "classes_")
    report.section("Model")
    sentence, formula = _LIKELIHOODS[model.likelihood]
    if model.likelihood in ("gaussian", "log-normal") and model.noise is not None:
        sentence = sentence.replace("one unknown standard deviation", f"standard deviation {model.noise:g}")
    if model.likelihood == "ordinal":
        places = places_in_order(model.classes_, model.class_order)
        sentence += f" The order is {', '.join(str(name) for name in model.classes_[np.argsort(places)])}."
    sizes = [model.problem().in_features, *model.widths, model.problem().out_features or 1]
    kind = "orthonormal " if model.orthogonal else ""
    hidden = f"{kind}hidden layers of {', '.join(map(str, model.widths))} units" if model.widths else "no hidden layers"
    if len(model.widths) == 1:
        hidden = f"one {kind}hidden layer of {model.widths[0]} units"
    report.text(
        f"A network f of dense layers with {hidden} and the activation {model.activation} computes "
        + sentence.format(" and ".join(f"`{target}`" for target in targets))
        + (" The targets share its hidden layers; each has outputs and a noise of its own." if len(targets) > 1 else "")
        + _about_powers(model, names)
        + " Inputs"
        + ("" if is_classifier or model.likelihood in COUNTS else " and target")
        + (", whose logarithm is taken," if model.likelihood == "log-normal" else "")
        + " are standardised: their mean is 0 and their standard deviation 1."
        + (" Inputs of two values, such as categories, have the distance 2." if model.halves_distances else "")
    )
    last = len(model.widths) + 1
    lines = [f"h_0 = x   ({counted(sizes[0], 'input')})"]
    lines += [f"h_{i} = {model.activation}(W_{i} h_{i - 1} + b_{i})   ({sizes[i]} units)" for i in range(1, last)]
    lines += [f"f(x) = W_{last} h_{last - 1} + b_{last}"]
    lines += [formula]
    report.code("\n".join(lines))
    report.table(
        _priors(model),
        ["parameters", "size", "prior"],
        "Priors of the weights W, the biases b and the noise, for standardised data."
        if not is_classifier and model.problem().likelihood.has_parameter
        else "Priors of the weights W and the biases b, for standardised data.",
    )
    inference = _METHODS.get(model.inference, str(model.inference))
    group = model.posterior_["posterior"].sizes
    report.text(
        f"Inference: {inference}, {group['chain']} chains of {group['draw']} draws. The chains of a network are in "
        "different modes and need not agree; the prediction averages over the draws of all of them."
    )


def _about_powers(model: Any, names: Sequence[str]) -> str:
    bent = [f"`{name}` ({power:g})" for name, power in zip(names, model.powers_.power, strict=True) if power != 1.0]
    more = f" and {len(bent) - _MOST_NAMED} more" if len(bent) > _MOST_NAMED else ""
    if not bent:
        return ""
    return (
        " Skewed inputs are first transformed by a power of Yeo and Johnson (0 for a logarithm, 1 for none): "
        f"{', '.join(bent[:_MOST_NAMED])}{more}."
    )


def _priors(model: Any) -> list[list[str]]:
    problem = model.problem()
    priors: list[tuple[str, tuple[int, ...], Any]] = []
    jax.eval_shape(lambda key: priors.extend(problem.priors.describe(problem.build(key))), jax.random.key(0))
    rows = []
    for path, shape, prior in priors:
        size = "\u00a0×\u00a0".join(map(str, shape)) or "1"
        rows.append([_parameter(path), size, _prior_text(prior, shape)])
    return rows


def _parameter(path: str) -> str:
    if path.endswith("log_noise"):
        return "log σ"
    if path.endswith("log_spacings"):
        return "log spacings of c"
    *_, number, name = path.split(".")
    symbols = {"weight": "W", "bias": "b", "left": "left singular vectors of W", "right": "right singular vectors of W"}
    symbols["log_gaps"] = "singular values of W"
    return f"{symbols.get(name, name)}_{int(number) + 1}" if number.isdigit() else path


def _prior_text(prior: Any, shape: tuple[int, ...]) -> str:
    if isinstance(prior, nn.Haar):
        return "uniform on orthonormal matrices"
    if not hasattr(prior, "scale"):
        return str(prior)
    scale = rounded(resolve_scale(prior.scale, shape, type(prior).__name__))
    if isinstance(prior, nn.Gaussian):
        return f"normal, mean {prior.mean:g}, standard deviation {scale}".replace("-", "−")
    if isinstance(prior, nn.Laplace):
        return f"Laplace, scale {scale}"
    if isinstance(prior, nn.StudentT):
        return f"Student's t, {prior.degrees_of_freedom:g} degrees of freedom, scale {scale}"
    if isinstance(prior, nn.Horseshoe | nn.HierarchicalHorseshoe):
        each = "each entry" if prior.local else "the array"
        return f"horseshoe, scale {scale}, one half-Cauchy factor for {each}"
    return str(prior)


def write_data(report: Report, data: LabelledTable, notes: list[str]) -> None:
    """Write the section on the data and what was left out."""
    report.section("Data")
    x, y = data.train
    aside = int(data.is_test.sum())
    report.text(
        f"{len(x):,} rows for the fit and {aside:,} held-out rows, {counted(len(data.names), 'input')}, target"
        f"{'s' * bool(data.several)} {', '.join(f'`{name}`' for name in data.target_names)}."
    )
    if notes:
        report.items(notes)
    columns = [(name, x[:, i]) for i, name in enumerate(data.names)]
    if np.issubdtype(y.dtype, np.number):
        columns = [*zip(data.target_names, y.reshape(len(y), -1).T, strict=True), *columns]
    rows = []
    for name, v in columns:
        write = _as_date if name in data.days else _as_year if _are_years(v) else _as_found
        mean = float(np.nanmean(v))
        ends = (write(float(np.nanmin(v))), write(float(np.nanmax(v))))
        rows.append([name, mean if write is _as_found else write(mean), float(np.nanstd(v)), *ends])
    report.table(rows, ["column", "mean", "sd", "smallest", "largest"], "The columns on the rows for the fit.")


def _as_date(day: float) -> str:
    return str(np.datetime64(round(day), "D"))


def _as_year(year: float) -> str:
    return f"{year:.0f}"


def _are_years(values: np.ndarray) -> bool:
    known = values[~np.isnan(values)]
    return bool(np.all((known == np.round(known)) & (known >= 1000) & (known < 2500)) and np.ptp(known) < 500)


def _as_found(value: float) -> str:
    """A number of the data: integers unchanged, others rounded."""
    return f"{value:,.0f}".replace("-", "−") if value.is_integer() and abs(value) < 1e10 else rounded(value, 4)
