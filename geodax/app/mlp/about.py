"""Text and formulas that describe the model of a network, its priors and its data."""

from typing import Any

import jax
import numpy as np

from geodax import nn
from geodax.app.mlp.files import LabelledTable
from geodax.app.report.html import Report
from geodax.app.report.numbers import rounded
from geodax.data.errors import counted
from geodax.nn.densities import resolve_scale

_METHODS = {
    "mcmc": "stochastic-gradient Markov chain Monte Carlo",
    "ensemble": "a deep ensemble",
    "swag": "SWAG",
    "multi-swag": "multi-SWAG",
    "whvi": "Walsh-Hadamard variational inference",
    "mean-field": "mean-field variational inference",
    "mc-dropout": "Monte Carlo dropout",
    "ivon": "improved variational online Newton",
    "noisy-kfac": "noisy K-FAC",
}


def write_model(report: Report, model: Any, target: str) -> None:
    """Write the section on the model.

    Args:
        report: The report.
        model: The fitted estimator.
        target: Name of the target.
    """
    is_classifier = hasattr(model, "classes_")
    report.section("Model")
    sizes = [model.problem().in_features, *model.widths, len(model.classes_) if is_classifier else 1]
    kind = "orthonormal " if model.orthogonal else ""
    hidden = f"{kind}hidden layers of {', '.join(map(str, model.widths))} units" if model.widths else "no hidden layers"
    if len(model.widths) == 1:
        hidden = f"one {kind}hidden layer of {model.widths[0]} units"
    report.text(
        f"A network f of dense layers with {hidden} and the activation {model.activation} computes "
        + (
            f"a number for each class of `{target}` from the inputs; their softmax are the class probabilities."
            if is_classifier
            else f"the mean of `{target}` from the inputs; the noise is normal with one unknown standard deviation."
            if model.noise is None
            else f"the mean of `{target}` from the inputs; the noise is normal with standard deviation {model.noise:g}."
        )
        + " Inputs"
        + ("" if is_classifier else " and target")
        + " are standardised: their mean is 0 and their standard deviation 1."
    )
    last = len(model.widths) + 1
    lines = [f"h_0 = x   ({counted(sizes[0], 'input')})"]
    lines += [f"h_{i} = {model.activation}(W_{i} h_{i - 1} + b_{i})   ({sizes[i]} units)" for i in range(1, last)]
    lines += [f"f(x) = W_{last} h_{last - 1} + b_{last}"]
    lines += ["P(class k | x) = exp f_k(x) / sum_j exp f_j(x)" if is_classifier else "y = f(x) + noise, Normal(0, σ²)"]
    report.code("\n".join(lines))
    report.table(
        _priors(model),
        ["parameters", "size", "prior"],
        "Priors of the weights W, the biases b"
        + (" and the noise" if not is_classifier else "")
        + ", for standardised data.",
    )
    inference = _METHODS.get(model.inference, str(model.inference))
    group = model.posterior_["posterior"].sizes
    report.text(
        f"Inference: {inference}, {group['chain']} chains of {group['draw']} draws. The chains of a network are in "
        "different modes and need not agree; the prediction averages over the draws of all of them."
    )


def _priors(model: Any) -> list[list[str]]:
    problem = model.problem()
    laws: list[tuple[str, tuple[int, ...], Any]] = []
    jax.eval_shape(lambda key: laws.extend(problem.priors.describe(problem.build(key))), jax.random.key(0))
    rows = []
    for path, shape, law in laws:
        size = "\u00a0×\u00a0".join(map(str, shape)) or "1"
        rows.append([_parameter(path), size, _law(law, shape)])
    return rows


def _parameter(path: str) -> str:
    """The symbol of an array of the network."""
    if path.endswith("log_noise"):
        return "log σ"
    *_, number, name = path.split(".")
    symbols = {"weight": "W", "bias": "b", "left": "left singular vectors of W", "right": "right singular vectors of W"}
    symbols["log_gaps"] = "singular values of W"
    return f"{symbols.get(name, name)}_{int(number) + 1}" if number.isdigit() else path


def _law(law: Any, shape: tuple[int, ...]) -> str:
    if isinstance(law, nn.Haar):
        return "uniform on orthonormal matrices"
    if not hasattr(law, "scale"):
        return str(law)
    scale = rounded(resolve_scale(law.scale, shape, type(law).__name__))
    if isinstance(law, nn.Gaussian):
        return f"normal, mean {law.mean:g}, standard deviation {scale}".replace("-", "−")
    if isinstance(law, nn.Laplace):
        return f"Laplace, scale {scale}"
    if isinstance(law, nn.StudentT):
        return f"Student's t, {law.degrees_of_freedom:g} degrees of freedom, scale {scale}"
    if isinstance(law, nn.Horseshoe | nn.HierarchicalHorseshoe):
        each = "each entry" if law.local else "the array"
        return f"horseshoe, scale {scale}, one half-Cauchy factor for {each}"
    return str(law)


def write_data(report: Report, data: LabelledTable, notes: list[str]) -> None:
    """Write the section on the data and what was left out.

    Args:
        report: The report.
        data: The rows.
        notes: Decisions made while reading the file.
    """
    report.section("Data")
    x, y = data.train
    aside = int(data.is_test.sum())
    report.text(
        f"{len(x):,} rows for the fit and {aside:,} held-out rows, {counted(len(data.names), 'input')}, target "
        f"`{data.target}`."
    )
    if notes:
        report.items(notes)
    columns = [(name, x[:, i]) for i, name in enumerate(data.names)]
    if np.issubdtype(y.dtype, np.number):
        columns.insert(0, (data.target, y))
    rows = [
        [
            name,
            float(np.nanmean(v)),
            float(np.nanstd(v)),
            _as_found(float(np.nanmin(v))),
            _as_found(float(np.nanmax(v))),
        ]
        for name, v in columns
    ]
    report.table(rows, ["column", "mean", "sd", "smallest", "largest"], "The columns on the rows for the fit.")


def _as_found(value: float) -> str:
    """A number of the data: integers unchanged, others rounded."""
    return f"{value:,.0f}".replace("-", "−") if value.is_integer() and abs(value) < 1e10 else rounded(value, 4)
