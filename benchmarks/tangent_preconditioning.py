r"""Does a mass matrix in the tangent space of a Stiefel leaf pay? Gradients per effective draw; float64.

A frame on the manifold has a scale for each pair of columns and for each column with the complement ("one scale": a single number instead).
Here its entries also have coordinates in a fixed frame, the Cayley chart around a first estimate M,

    X = G (I + W)(I - W)^{-1} I_{n,p},    W = [[A, -B^T], [B, 0]],    z = (A below the diagonal, B),    G = (M, any complement),

whose derivative at zero is twice the tangent vector M A + M_perp B; its volume is exp(-(n - 1) log det(I - A + B^T B)) up to a constant
(derived in `geodax.geometry.transforms.cayley`). In z the usual mass matrix of all unconstrained entries holds, together with that of the
other parameters.

A density that does not see the signs of the columns has mirror images at the edge of the chart. "Signs" multiplies it by

    prod_j 1 / (1 + exp(-20 m_j^T x_j)),

which adds up to one over the 2^p mirror images: what does not depend on the signs keeps its distribution, and one image is left.

First 4 chains of NUTS on the manifold, 300 + 100 iterations. M is the orthonormal mean of their draws, aligned in sign where the density
does not see the signs; all samplers start from these draws. NUTS has 4 chains of 1,000 + 1,000 iterations, HMC 32 chains of 300 + 300.
The figure is the number of gradients after warm-up over the smallest bulk ESS of all quantities: entries of X where the density sees the
signs, elsewhere entries of all x_j x_j^T, and all other parameters. z is the largest difference of a mean from that of the same sampler on
the manifold (canonical metric, Cayley flow), in standard errors. The farthest draw is the largest coordinate in the chart, also of draws
on the manifold: one is a right angle from M, infinity what the chart misses, such as M with the sign of a column changed.

    python benchmarks/tangent_preconditioning.py [--targets wine ...] [--samplers nuts hmc] [--ways dense ...]

writes benchmarks/results/tangent_preconditioning.json (targets and samplers that are not run keep their rows) and prints the rows.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from _versions import installed
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer, load_wine

import geodax as gx
from geodax.diagnostics.alignment import align_signs, mean_orthonormal
from geodax.diagnostics.convergence import ess, rhat
from geodax.geometry.flows import Cayley
from geodax.geometry.transforms import CayleyChart, unconstrain
from geodax.models.eigenmodel import density as eigenmodel
from geodax.models.eigenmodel.modes import find_modes, starting_point
from geodax.models.pca import density as ppca
from geodax.models.pca.observations import observations

jax.config.update("jax_enable_x64", True)

RESULTS = Path(__file__).parent / "results" / "tangent_preconditioning.json"
SIZES = {"nuts": (4, 1000), "hmc": (32, 300)}  # chains, iterations of warm-up and of sampling


class OneScale(Cayley):
    """The Cayley flow with one number for all directions."""

    takes_scales: ClassVar[bool] = False


MANIFOLDS = {
    "canonical": gx.Stiefel(),
    "one scale": gx.Stiefel(flow=OneScale()),
    "embedded, geodesic": gx.Stiefel(metric="embedded", flow="geodesic"),
}
MATRICES = ("diagonal", "low_rank", "dense")
WAYS = (*MANIFOLDS, *MATRICES, *(f"{kind}, signs" for kind in MATRICES))
STEEPNESS = 20.0


class Target(NamedTuple):
    """A log density of positions {"frame": X, ...}.

    Attributes:
        logdensity: The function.
        start: From a key to a position.
        is_even: Whether the signs of the columns do not matter.
    """

    logdensity: Callable
    start: Callable
    is_even: bool


def frames(logdensity: Callable, n: int, p: int, is_even: bool) -> Target:
    """Of a frame alone."""
    like = jnp.zeros((n, p))
    return Target(
        lambda x: logdensity(x["frame"]), lambda key: {"frame": gx.Stiefel().random_point(key, like)}, is_even
    )


def langevin(n: int, concentrations: list[float]) -> Target:
    p = len(concentrations)
    f = np.linalg.qr(np.random.default_rng(0).normal(size=(n, p)))[0] * concentrations
    return frames(lambda x: jnp.sum(f * x), n, p, is_even=False)


def bingham(eigenvalues: list[float], weights: list[float]) -> Target:
    """In turned axes, so that no entry is special."""
    n = len(eigenvalues)
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(n, n)))[0]
    root = jnp.asarray(np.sqrt(eigenvalues)[:, None] * axes.T)
    return frames(lambda x: jnp.sum(jnp.asarray(weights)[None] * (root @ x) ** 2), n, len(weights), is_even=True)


def pca(rows: np.ndarray, num_components: int, standardize: bool = True) -> Target:
    """The model of `geodax fit pca`, all its parameters."""
    rows = rows - rows.mean(0)
    rows = rows / (rows.std(0) if standardize else rows.std())
    logdensity = ppca.log_density(observations(rows), ppca.PPCAPrior())
    start = ppca.starting_points(rows, num_components)

    def named(position: dict) -> dict:
        return {"frame" if k == "components" else k: v for k, v in position.items()}

    return Target(
        lambda x: logdensity({"components" if k == "frame" else k: v for k, v in x.items()}),
        lambda key: named(start(key)),
        is_even=True,
    )


def simulated_rows(scales: list[float], n: int, num_rows: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    axes = np.linalg.qr(generator.normal(size=(n, len(scales))))[0]
    scores = generator.normal(size=(num_rows, len(scales))) * scales
    return scores @ axes.T + 0.5 * generator.normal(size=(num_rows, n))


def network(n: int, eigenvalues: list[float]) -> Target:
    """A network drawn from the eigenmodel."""
    vectors = np.linalg.qr(np.random.default_rng(0).normal(size=(n, len(eigenvalues))))[0]
    truth = eigenmodel.EigenmodelParameters(vectors, np.asarray(eigenvalues), np.asarray(-0.5))
    pairs = eigenmodel.pairs(np.asarray(eigenmodel.draw_network(jax.random.key(0), truth, "probit")))
    prior = eigenmodel.EigenmodelPrior()
    logdensity = eigenmodel.log_density(pairs, "probit", prior)
    modes = find_modes(pairs, len(eigenvalues), "probit", prior)

    def start(key):
        position = starting_point(key, modes)
        return {
            "frame": position["vectors"],
            "eigenvalues": position["eigenvalues"],
            "intercept": position["intercept"],
        }

    return Target(
        lambda x: logdensity({"vectors" if k == "frame" else k: v for k, v in x.items()}), start, is_even=True
    )


TARGETS: dict[str, Callable[[], Target]] = {
    "Langevin, (5, 2), 10 and 10": lambda: langevin(5, [10.0, 10.0]),
    "Langevin, (5, 2), 1 and 1": lambda: langevin(5, [1.0, 1.0]),
    "Langevin, (10, 3), 3, 30 and 300": lambda: langevin(10, [300.0, 30.0, 3.0]),
    "Langevin, (10, 3), 30, 300 and 3,000": lambda: langevin(10, [3000.0, 300.0, 30.0]),
    "Bingham, (8, 3), ill-conditioned": lambda: bingham([0, 1, 2, 4, 8, 30, 200, 1500], [1.0, 0.7, 0.4]),
    "PCA, wine, (13, 3)": lambda: pca(load_wine().data, 3),
    "PCA, wine, (13, 6)": lambda: pca(load_wine().data, 6),
    "PCA, breast cancer, (30, 3)": lambda: pca(load_breast_cancer().data, 3),
    "PCA, simulated, (20, 3), scales 10, 3 and 1": lambda: pca(simulated_rows([10.0, 3.0, 1.0], 20, 200), 3, False),
    "eigenmodel, simulated, (40, 2)": lambda: network(40, [40.0, -25.0]),
}


def signs(x: jax.Array, center: jax.Array) -> jax.Array:
    """Logarithm of a smooth share of each of the 2^p matrices that differ in signs; the shares add up to one."""
    return jnp.sum(jax.nn.log_sigmoid(STEEPNESS * jnp.sum(center * x, axis=0)))


def quantities(position: dict, is_even: bool) -> jax.Array:
    """What the figures are of, as one vector."""
    x = position["frame"]
    rows, columns = np.triu_indices(len(x))
    seen = x[rows] * x[columns] if is_even else x
    return jnp.concatenate([seen.ravel(), *(jnp.ravel(v) for k, v in position.items() if k != "frame")])


def run(sampler: str, logdensity: Callable, start: dict, keep: Callable, **options) -> tuple[np.ndarray, dict]:
    """Draws of the quantities, and figures; `keep` returns the quantities and the coordinates of the frame."""
    num_chains, length = SIZES[sampler]
    tree = gx.sample(
        jax.random.key(1),
        getattr(gx, sampler)(logdensity, **options),
        start,
        keep=lambda x: {"seen": keep(x)[0], "farthest": jnp.max(jnp.abs(keep(x)[1]))},
        num_samples=length,
        num_warmup=length,
        num_chains=num_chains,
        stacked=True,
        progress=False,
    )
    draws, stats = tree["posterior"]["seen"].values, tree["sample_stats"]
    gradients, smallest = float(stats["n_steps"].sum()), float(ess(draws).min())
    return draws, {
        "ess": smallest,
        "gradients": gradients,
        "gradients_per_draw": gradients / smallest,
        "rhat": float(rhat(draws).max()),
        "divergences": int(stats["diverging"].sum()),
        "farthest": float(tree["posterior"]["farthest"].max()),
    }


def means(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and their standard errors."""
    return draws.mean((0, 1)), draws.std((0, 1)) / np.sqrt(ess(draws, method="mean"))


def first_draws(target: Target) -> dict:
    """Positions from a short run, aligned in sign."""
    algorithm = gx.nuts(target.logdensity, manifold=gx.Product({"frame": gx.Stiefel()}))
    tree = gx.sample(
        jax.random.key(0), algorithm, target.start, num_samples=100, num_warmup=300, num_chains=4, progress=False
    )
    found = {k: v.values.reshape(-1, *v.shape[2:]) for k, v in tree["posterior"].data_vars.items()}
    return found | ({"frame": align_signs(found["frame"])[0]} if target.is_even else {})


def compare(name: str, samplers: list[str], ways: list[str]):
    """One row for each sampler and way."""
    target = TARGETS[name]()
    first = first_draws(target)
    n, p = first["frame"].shape[-2:]
    center = jnp.asarray(mean_orthonormal(first["frame"], up_to="nothing"))
    chart = CayleyChart(n, p, center=center)

    def with_signs(x):
        return target.logdensity(x) + signs(x["frame"], center)

    for sampler in samplers:
        num_chains = SIZES[sampler][0]
        start = {k: jnp.asarray(v[:: len(v) // num_chains][:num_chains]) for k, v in first.items()}
        truth = None
        for way in WAYS:
            if (way not in ways and way != "canonical") or ("signs" in way and not target.is_even):
                continue
            if way in MANIFOLDS:
                draws, found = run(
                    sampler,
                    target.logdensity,
                    start,
                    lambda x: (quantities(x, target.is_even), chart.inverse(x["frame"])),
                    manifold=gx.Product({"frame": MANIFOLDS[way]}),
                )
            else:
                u = unconstrain(with_signs if "signs" in way else target.logdensity, {"frame": chart})
                draws, found = run(
                    sampler,
                    u.logdensity,
                    jax.vmap(u.unconstrain)(start),
                    lambda z, u=u: (quantities(u.constrain(z), target.is_even), z["frame"]),
                    mass_matrix=way.split(",")[0],
                )
            mean, error = means(draws)
            truth = truth or (mean, error)
            z = float(np.max(np.abs(mean - truth[0]) / np.hypot(error, truth[1])))
            bound = float(norm.isf(0.0005 / len(mean)))
            yield {"target": name, "sampler": sampler, "way": way} | found | {"z": z, "bound": bound}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", help="parts of their names")
    parser.add_argument("--samplers", nargs="+", choices=tuple(SIZES), default=list(SIZES))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="besides the first")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    facts = {"benchmark": "tangent_preconditioning", "rows": []}
    if options.out.exists():
        facts = json.loads(options.out.read_text())
    order = list(TARGETS)
    for name in order:
        if options.targets and not any(part in name for part in options.targets):
            continue
        for row in compare(name, options.samplers, options.ways):
            facts["rows"] = [old for old in facts["rows"] if any(old[k] != row[k] for k in list(row)[:3])] + [row]
            facts["rows"].sort(key=lambda row: order.index(row["target"]))
            facts["versions"] = installed("jax", "numpy")
            options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
