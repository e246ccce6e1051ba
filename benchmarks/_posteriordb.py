"""Ten posteriors of posteriordb, written in JAX, and the files of a checkout of it.

Magnusson, Torgander, Bürkner, Zhang, Carpenter and Vehtari (2025), posteriordb: Testing, benchmarking and developing
Bayesian inference algorithms. AISTATS. Every log density is on the unconstrained scale, up to a constant.
"""

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from geodax.diagnostics.convergence import mcse

HOW_TO_GET = "--data must be a checkout of posteriordb: git clone https://github.com/stan-dev/posteriordb"


class Model(NamedTuple):
    """A posterior density.

    Attributes:
        parameters: Shape and support ("real", "positive" or "unit") of each parameter.
        logdensity: Log density of the constrained parameters.
        quantities: The quantities of the reference, from the constrained parameters.
    """

    parameters: dict[str, tuple[tuple[int, ...], str]]
    logdensity: Callable[[dict[str, Any]], Any]
    quantities: Callable[[dict[str, Any]], dict[str, Any]] = lambda values: values

    @property
    def dim(self) -> int:
        return sum(int(np.prod(shape)) for shape, _ in self.parameters.values())

    def constrain(self, z: Any) -> tuple[dict[str, Any], Any]:
        """Parameters of an unconstrained vector, and the log determinant of the Jacobian."""
        unravel = ravel_pytree({name: jnp.zeros(shape) for name, (shape, _) in self.parameters.items()})[1]
        values, log_volume = unravel(z), 0.0
        for name, (_, support) in self.parameters.items():
            free = values[name]
            if support == "positive":
                values[name], log_volume = jnp.exp(free), log_volume + jnp.sum(free)
            elif support == "unit":
                values[name] = jax.nn.sigmoid(free)
                log_volume += jnp.sum(jax.nn.log_sigmoid(free) + jax.nn.log_sigmoid(-free))
        return values, log_volume

    def unconstrained(self, z: Any) -> Any:
        """Log density of an unconstrained vector."""
        values, log_volume = self.constrain(z)
        return self.logdensity(values) + log_volume

    def named(self, draws: np.ndarray) -> dict[str, np.ndarray]:
        """Quantities of unconstrained draws (chain, draw, dim), each (chain, draw), named as in posteriordb."""
        found = jax.jit(jax.vmap(jax.vmap(lambda z: self.quantities(self.constrain(z)[0]))))(jnp.asarray(draws))
        return {
            name if values.ndim == 2 else f"{name}[{i + 1}]": np.asarray(values if values.ndim == 2 else values[..., i])
            for name, values in found.items()
            for i in range(1 if values.ndim == 2 else values.shape[-1])
        }


REAL, POSITIVE, UNIT = ((), "real"), ((), "positive"), ((), "unit")


def normal(x: Any, mean: Any, scale: Any) -> Any:
    return jnp.sum(-0.5 * ((x - mean) / scale) ** 2 - jnp.log(scale))


def half_cauchy(x: Any, scale: float) -> Any:
    return -jnp.log1p((x / scale) ** 2)


def eight_schools(data: Mapping[str, Any], is_centred: bool) -> Model:
    y, errors = data["y"], data["sigma"]

    def effects(v):
        return v["theta"] if is_centred else v["mu"] + v["tau"] * v["theta"]

    def logdensity(v):
        prior = normal(v["theta"], v["mu"], v["tau"]) if is_centred else normal(v["theta"], 0.0, 1.0)
        return prior + normal(v["mu"], 0.0, 5.0) + half_cauchy(v["tau"], 5.0) + normal(y, effects(v), errors)

    parameters = {"theta": ((len(y),), "real"), "mu": REAL, "tau": POSITIVE}
    return Model(parameters, logdensity, lambda v: v | {"theta": effects(v)})


def regression(x: Any, y: Any, log_prior: Callable[[Any], Any]) -> Model:
    """Linear regression with a flat prior on the coefficients; the first column of inputs is constant."""
    x = jnp.column_stack([jnp.ones(len(y)), *x])
    parameters = {"beta": ((x.shape[1],), "real"), "sigma": POSITIVE}
    return Model(parameters, lambda v: normal(y, x @ v["beta"], v["sigma"]) + log_prior(v["sigma"]))


def logmesquite_logvas(data: Mapping[str, Any]) -> Model:
    log = {name: jnp.log(values) for name, values in data.items() if name not in ("N", "group")}
    area, shape = log["diam1"] + log["diam2"], log["diam1"] - log["diam2"]
    inputs = (area + log["canopy_height"], area, shape, log["total_height"], log["density"], data["group"])
    return regression(inputs, log["weight"], jnp.zeros_like)


def kidscore_interaction(data: Mapping[str, Any]) -> Model:
    school, iq = data["mom_hs"], data["mom_iq"]
    return regression((school, iq, school * iq), data["kid_score"], lambda sigma: half_cauchy(sigma, 2.5))


def autoregression(data: Mapping[str, Any]) -> Model:
    y, k = data["y"], int(data["K"])
    past = jnp.stack([y[k - lag : len(y) - lag] for lag in range(1, k + 1)], axis=1)

    def logdensity(v):
        prior = normal(v["alpha"], 0.0, 10.0) + normal(v["beta"], 0.0, 10.0) + half_cauchy(v["sigma"], 2.5)
        return prior + normal(y[k:], v["alpha"] + past @ v["beta"], v["sigma"])

    return Model({"alpha": REAL, "beta": ((k,), "real"), "sigma": POSITIVE}, logdensity)


def arma(data: Mapping[str, Any]) -> Model:
    y = data["y"]

    def logdensity(v):
        def errors(error, pair):
            error = pair[1] - v["mu"] - v["phi"] * pair[0] - v["theta"] * error
            return error, error

        first = y[0] - v["mu"] - v["phi"] * v["mu"]
        following = jax.lax.scan(errors, first, jnp.stack([y[:-1], y[1:]], axis=1))[1]
        prior = normal(v["mu"], 0.0, 10.0) + normal(v["phi"], 0.0, 2.0) + normal(v["theta"], 0.0, 2.0)
        return prior + half_cauchy(v["sigma"], 2.5) + normal(jnp.append(following, first), 0.0, v["sigma"])

    return Model({"mu": REAL, "phi": REAL, "theta": REAL, "sigma": POSITIVE}, logdensity)


def garch(data: Mapping[str, Any]) -> Model:
    """beta1 is between 0 and 1 - alpha1, a share of it."""
    y = data["y"]

    def logdensity(v):
        def variances(variance, value):
            residual = value - v["mu"]
            variance = v["alpha0"] + v["alpha1"] * residual**2 + (1 - v["alpha1"]) * v["share"] * variance
            return variance, variance

        first = data["sigma1"] ** 2
        following = jax.lax.scan(variances, first, y[:-1])[1]
        return normal(y, v["mu"], jnp.sqrt(jnp.append(first, following))) + jnp.log1p(-v["alpha1"])

    parameters = {"mu": REAL, "alpha0": POSITIVE, "alpha1": UNIT, "share": UNIT}
    return Model(parameters, logdensity, lambda v: v | {"beta1": (1 - v["alpha1"]) * v["share"]})


def gaussian_process(data: Mapping[str, Any], is_poisson: bool) -> Model:
    x, identity = data["x"], jnp.eye(len(data["x"]))

    def root(v, noise):
        distance = (x[:, None] - x[None]) / v["rho"]
        return jnp.linalg.cholesky(v["alpha"] ** 2 * jnp.exp(-0.5 * distance**2) + noise * identity)

    def prior(v):
        return 24 * jnp.log(v["rho"]) - 4 * v["rho"] + normal(v["alpha"], 0.0, 2.0)

    def counts(v):
        f = root(v, 1e-10) @ v["f_tilde"]
        return prior(v) + normal(v["f_tilde"], 0.0, 1.0) + jnp.sum(data["k"] * f - jnp.exp(f))

    def values(v):
        factor = root(v, v["sigma"])
        white = jax.scipy.linalg.solve_triangular(factor, data["y"], lower=True)
        return prior(v) + normal(v["sigma"], 0.0, 1.0) + normal(white, 0.0, 1.0) - jnp.sum(jnp.log(jnp.diag(factor)))

    parameters = {"rho": POSITIVE, "alpha": POSITIVE}
    if is_poisson:
        latent = {"f_tilde": (x.shape, "real")}
        return Model(parameters | latent, counts, lambda v: v | {"f": root(v, 1e-10) @ v["f_tilde"]})
    return Model(parameters | {"sigma": POSITIVE}, values)


def dogs(data: Mapping[str, Any]) -> Model:
    y = data["y"]
    shocks = jnp.cumsum(y, axis=1) - y
    avoidances = jnp.broadcast_to(jnp.arange(y.shape[1], dtype=y.dtype), y.shape) - shocks

    def logdensity(v):
        logits = v["beta"][0] + v["beta"][1] * avoidances + v["beta"][2] * shocks
        return normal(v["beta"], 0.0, 100.0) + jnp.sum(y * logits - jnp.logaddexp(0.0, logits))

    return Model({"beta": ((3,), "real")}, logdensity)


MODELS: dict[str, Callable[[Mapping[str, Any]], Model]] = {
    "eight_schools-eight_schools_centered": lambda data: eight_schools(data, is_centred=True),
    "eight_schools-eight_schools_noncentered": lambda data: eight_schools(data, is_centred=False),
    "arK-arK": autoregression,
    "arma-arma11": arma,
    "garch-garch11": garch,
    "gp_pois_regr-gp_regr": lambda data: gaussian_process(data, is_poisson=False),
    "gp_pois_regr-gp_pois_regr": lambda data: gaussian_process(data, is_poisson=True),
    "mesquite-logmesquite_logvas": logmesquite_logvas,
    "kidiq-kidscore_interaction": kidscore_interaction,
    "dogs-dogs": dogs,
}


class Reference(NamedTuple):
    """Moments of the reference draws by quantity, each with its standard error.

    Attributes:
        mean: Means.
        sd: Standard deviations; empty if only the summary of the draws is on file.
        source: "draws" or "summary".
    """

    mean: dict[str, tuple[float, float]]
    sd: dict[str, tuple[float, float]]
    source: str


def read(checkout: Path, name: str) -> tuple[Model, Reference]:
    """A posterior and its reference, from a checkout of posteriordb.

    Raises:
        FileNotFoundError: If a file is missing; the message says which, and how to get it.
    """
    root = checkout / "posterior_database"
    entry = json.loads(_existing(root / "posteriors" / f"{name}.json").read_text(encoding="utf-8"))
    data = _zipped(root / "data" / "data" / f"{entry['data_name']}.json.zip")
    model = MODELS[name]({key: jnp.asarray(values, float) for key, values in data.items()})
    return model, read_reference(root / "reference_posteriors", entry["reference_posterior_name"])


def read_reference(root: Path, name: str) -> Reference:
    """From the draws if they are there, otherwise from their means."""
    path = root / "draws" / "draws" / f"{name}.json.zip"
    if path.exists():
        chains = _zipped(path)
        draws = {key: np.array([chain[key] for chain in chains]) for key in chains[0]}
        means = {key: (float(x.mean()), float(mcse(x))) for key, x in draws.items()}
        sds = {key: (float(x.std(ddof=1)), float(mcse(x, method="sd"))) for key, x in draws.items()}
        return Reference(means, sds, "draws")
    summary = root / "summary_statistics" / "mean_value" / "mean_value" / f"{name}.json"
    facts = json.loads(_existing(summary).read_text(encoding="utf-8"))
    pairs = zip(facts["mean_value"], facts["mcse_mean"], strict=True)
    return Reference(dict(zip(facts["names"], pairs, strict=True)), {}, "summary")


def errors(draws: Mapping[str, np.ndarray], reference: Reference) -> dict[str, float]:
    """Differences from the reference in standard errors, by moment: "mean of tau", "sd of tau"."""
    found = {}
    for name, (expected, error) in reference.mean.items():
        x = draws[name]
        found[f"mean of {name}"] = (float(x.mean()) - expected) / float(np.hypot(error, mcse(x)))
    for name, (expected, error) in reference.sd.items():
        x = draws[name]
        found[f"sd of {name}"] = (float(x.std(ddof=1)) - expected) / float(np.hypot(error, mcse(x, method="sd")))
    return found


def _existing(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing. {HOW_TO_GET}.")
    return path


def _zipped(path: Path) -> Any:
    """The JSON file in a zip; archives from macOS hold others beside it."""
    with zipfile.ZipFile(_existing(path)) as archive:
        member = next(member for member in archive.namelist() if Path(member).name == path.stem)
        return json.loads(archive.read(member))
