"""What the schemes of Yanush and Kropotov (2019) keep along a trajectory, and what they lose.

Symplecticity and volume of one leapfrog step by automatic differentiation, the order of the energy error, its growth
over long trajectories, the number of steps after which numerically unstable forms have left the manifold, and the
probability of each determinant on square matrices.

    python -m experiments.orthogonal_hmc.geometry_in_print [--smoke]
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.linalg
import scipy.special

import geodax as gx
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import number, table, with_error
from experiments.orthogonal_hmc.printed import CONSISTENT, GEODESIC, LITERAL, VARIANTS, Scheme, leapfrog

LOST = 1e-3  # a residual that no longer is rounding

SCHEMES = {
    "literal": LITERAL,
    "consistent": CONSISTENT,
    "momentum projected instead of rotated": VARIANTS["literal, momentum projected instead of rotated"],
}
MATCHES = {
    "literal, energy |r|²/2": LITERAL,
    "literal, canonical energy": LITERAL._replace(energy=CONSISTENT.energy),
    "consistent, canonical energy": CONSISTENT,
    "consistent, energy |r|²/2": CONSISTENT._replace(energy=LITERAL.energy),
    "plain gradient, energy |r|²/2": LITERAL._replace(kick=lambda x, g: g),
    "geodesic, energy |r|²/2": GEODESIC,
}


def _geodesic_as_printed(x, r, t):
    """Equation 7: the exponential of a matrix that is not skew."""
    p = x.shape[1]
    a, s, identity, zero = x.T @ r, r.T @ r, jnp.eye(p, dtype=x.dtype), jnp.zeros((p, p), x.dtype)
    left = jax.scipy.linalg.expm(t * jnp.block([[a, -s], [identity, a]]))
    right = jax.scipy.linalg.expm(-t * a)
    moved = jnp.concatenate([x, r], axis=1) @ left @ jnp.block([[right, zero], [zero, right]])
    return moved[:, :p], moved[:, p:]


def _woodbury_with_identities(x, r, t):
    """Equation 10 by the Woodbury identity, with x^T x replaced by the identity matrix."""
    p = x.shape[1]
    a, s, identity = x.T @ r, r.T @ r, jnp.eye(p, dtype=x.dtype)
    u, v = jnp.concatenate([r, x], axis=1), jnp.concatenate([x, -r], axis=1)
    gram = jnp.block([[a, identity], [-s, -a.T]])

    def apply(y):
        return y + t * u @ jnp.linalg.solve(jnp.eye(2 * p, dtype=x.dtype) - 0.5 * t * gram, v.T @ y)

    return apply(x), apply(r)


DRIFTS: dict[str, Scheme] = {
    "equation (7) as printed": GEODESIC._replace(drift=_geodesic_as_printed),
    "geodesic, skew form": GEODESIC,
    "equation (10), Woodbury with xᵀx set to I": LITERAL._replace(drift=_woodbury_with_identities),
    "equation (10), Gram blocks computed": LITERAL,
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes.

    Attributes:
        shapes: Rows and columns for the symplectic form.
        step_sizes: Those of the energy's order, over one unit of time.
        lengths: Steps of the long trajectories.
        num_starts: Starting points.
        stability_shapes: Rows and columns of the stability runs.
        strengths: Factors of their log density.
        num_stability_steps: Their steps.
        sheets: Rows (and columns), concentration.
        num_chains: Chains of the determinant's runs.
        num_iterations: Their iterations.
        num_exact: Exact draws behind the determinant's probability.
        seeds: Repetitions.
    """

    shapes: tuple[tuple[int, int], ...] = ((2, 2), (3, 2), (5, 3), (4, 4))
    step_sizes: tuple[float, ...] = (0.05, 0.025, 0.0125)
    lengths: tuple[int, ...] = (100, 1_000, 10_000, 100_000)
    num_starts: int = 32
    stability_shapes: tuple[tuple[int, int], ...] = ((2, 2), (5, 3), (10, 3))
    strengths: tuple[float, ...] = (1.0, 10.0)
    num_stability_steps: int = 10_000
    sheets: tuple[tuple[int, float], ...] = ((2, 0.8), (3, 0.8), (4, 0.6))
    num_chains: int = 512
    num_iterations: int = 1_000
    num_exact: int = 1_000_000
    seeds: tuple[int, ...] = (0,)


def pieces(config: Config) -> list[Labels]:
    """One piece a figure of a table."""
    labels: list[Labels] = []
    for seed in config.seeds:
        for n, p in config.shapes:
            labels += [{"part": "form", "scheme": s, "n": n, "p": p, "seed": seed} for s in SCHEMES]
        labels += [{"part": "order", "scheme": s, "n": 5, "p": 3, "seed": seed} for s in MATCHES]
        labels += [{"part": "long", "scheme": s, "n": 5, "p": 3, "seed": seed} for s in ("literal", "consistent")]
        for n, p in config.stability_shapes:
            for strength in config.strengths:
                for dtype in ("float32", "float64"):
                    piece = {"part": "stability", "n": n, "p": p, "strength": strength, "dtype": dtype, "seed": seed}
                    labels += [piece | {"drift": drift} for drift in DRIFTS]
        labels += [{"part": "sheets", "n": n, "k": k, "seed": seed} for n, k in config.sheets]
    return labels


def quadratic(n: int, p: int, strength: float = 3.0) -> Callable:
    """A smooth log density without symmetry, a multiple of tr(D x^T S x) + tr(F^T x)."""
    rng = np.random.default_rng(7)
    linear, square = rng.normal(size=(n, p)), rng.normal(size=(n, n))
    square = (square + square.T) / np.sqrt(8.0 * n)
    weights = np.arange(1.0, p + 1.0)[None, :] / p

    def logdensity(x):
        f, s, d = (jnp.asarray(a, x.dtype) for a in (linear, square, weights))
        return strength * (jnp.sum(x * (s @ x) * d) + jnp.sum(f * x))

    return logdensity


def _starts(scheme: Scheme, n: int, p: int, num: int, seed: int, dtype=jnp.float64):
    key_point, key_momentum = jax.random.split(jax.random.key(seed))
    x = gx.distributions.StiefelUniform(n, p, dtype).sample(key_point, (num,))
    return x, jax.vmap(scheme.draw)(x, jax.random.normal(key_momentum, x.shape, dtype))


def form_defects(scheme: Scheme, n: int, p: int, seed: int, step_size: float = 0.3) -> Figures:
    """How far a leapfrog step is from keeping the symplectic form, the volume, and from being reversible.

    The tangent spaces of the cotangent bundle, cut out by x^T x = I and sym(x^T r) = 0, are the null spaces of the
    differentiated constraints.
    """
    step = leapfrog(scheme, quadratic(n, p))
    x, r = (a[0] for a in _starts(scheme, n, p, 1, seed))

    def move(z):
        return jnp.stack(step(z[0], z[1], jnp.asarray(step_size)))

    def constraints(z):
        return jnp.stack([z[0].T @ z[0], z[0].T @ z[1] + z[1].T @ z[0]])

    def basis(z):
        return scipy.linalg.null_space(np.asarray(jax.jacfwd(constraints)(z)).reshape(-1, z.size), rcond=1e-10)

    start = jnp.stack([x, r])
    end, derivative = jax.jit(lambda z: (move(z), jax.jacfwd(move)(z)))(start)
    before, after = basis(start), basis(end)
    half = start.size // 2
    ambient = np.block([[np.zeros((half, half)), np.eye(half)], [-np.eye(half), np.zeros((half, half))]])
    carried = np.asarray(derivative).reshape(start.size, start.size) @ before
    form = before.T @ ambient @ before
    ratio = np.sqrt(np.linalg.det(after.T @ ambient @ after) / np.linalg.det(form))
    back = move(end * jnp.asarray([1.0, -1.0])[:, None, None]) * jnp.asarray([1.0, -1.0])[:, None, None]
    return {
        "symplectic": float(np.abs(carried.T @ ambient @ carried - form).max()),
        "volume": float(abs(abs(np.linalg.det(after.T @ carried)) * ratio - 1)),
        "reversibility": float(jnp.max(jnp.abs(back - start))),
    }


def energy_errors(scheme: Scheme, labels: Labels, config: Config) -> Figures:
    """Root mean square energy error after one unit of time for each step size."""
    logdensity_fn = quadratic(labels["n"], labels["p"])
    step = leapfrog(scheme, logdensity_fn)
    starts = _starts(scheme, labels["n"], labels["p"], config.num_starts, labels["seed"])

    @jax.jit
    def change(x, r, step_size, num_steps):
        y, s = jax.lax.fori_loop(0, num_steps, lambda _, state: step(*state, step_size), (x, r))
        return scheme.energy(y, s) - logdensity_fn(y) - scheme.energy(x, r) + logdensity_fn(x)

    errors = [
        float(jnp.sqrt(jnp.mean(jax.vmap(change, (0, 0, None, None))(*starts, jnp.asarray(eps), round(1 / eps)) ** 2)))
        for eps in config.step_sizes
    ]
    return {"errors": errors, "order": float(np.log2(errors[-2] / errors[-1]))}


def long_run(scheme: Scheme, labels: Labels, config: Config, step_size: float = 0.1) -> Figures:
    """Root mean square energy error along trajectories that are much longer than a sampler's."""
    logdensity_fn = quadratic(labels["n"], labels["p"])
    step = leapfrog(scheme, logdensity_fn)
    x, r = _starts(scheme, labels["n"], labels["p"], config.num_starts, labels["seed"])

    def energy(x, r):
        return scheme.energy(x, r) - logdensity_fn(x)

    @jax.jit
    @jax.vmap
    def advance(state, num_steps):
        return jax.lax.fori_loop(0, num_steps, lambda _, s: step(*s, jnp.asarray(step_size)), state)

    initial, state, done, errors = jax.vmap(energy)(x, r), (x, r), 0, []
    for length in config.lengths:
        state = advance(state, jnp.full(len(x), length - done))
        done = length
        errors.append(float(jnp.sqrt(jnp.mean((jax.vmap(energy)(*state) - initial) ** 2))))
    return {"errors": errors}


def stability(scheme: Scheme, labels: Labels, config: Config, step_size: float = 0.1) -> Figures:
    """Steps of one long trajectory until the manifold is lost, and how far it was at worst and in the end."""
    dtype = jnp.dtype(labels["dtype"])
    step = leapfrog(scheme, quadratic(labels["n"], labels["p"], labels["strength"]))
    x, r = _starts(scheme, labels["n"], labels["p"], config.num_starts, labels["seed"], dtype)

    def residual(x):
        worst = jnp.max(jnp.abs(x.T @ x - jnp.eye(x.shape[1], dtype=x.dtype)))
        return jnp.where(jnp.isnan(worst), jnp.inf, worst)

    @jax.jit
    @jax.vmap
    def run(x, r):
        def body(carry, index):
            x, r, lost_at, worst = carry
            x, r = step(x, r, jnp.asarray(step_size, x.dtype))
            now = residual(x)
            lost_at = jnp.where((lost_at < 0) & (now > LOST), index + 1, lost_at)
            return (x, r, lost_at, jnp.maximum(worst, now)), None

        carry = (x, r, jnp.asarray(-1), jnp.zeros((), x.dtype))
        (x, _, lost_at, worst), _ = jax.lax.scan(body, carry, jnp.arange(config.num_stability_steps))
        return lost_at, worst, residual(x)

    lost_at, worst, final = (np.asarray(a, np.float64) for a in run(x, r))
    lost = lost_at[lost_at > 0]
    return {
        "num_lost": len(lost),
        "num_starts": len(lost_at),
        "lost_at": [float(v) for v in (lost.min(), np.median(lost), lost.max())] if len(lost) else None,
        "worst": float(np.median(worst)),
        "num_back": int(np.sum((lost_at > 0) & (final < LOST))),
    }


def sheets(labels: Labels, config: Config) -> Figures:
    """Probability of a positive determinant under exp(k tr x): exact draws, and the sampler with its reflections."""
    n, k = labels["n"], labels["k"]
    target = gx.distributions.MatrixLangevin(k * jnp.eye(n))
    key_exact, key_start, key_run = jax.random.split(jax.random.key(labels["seed"]), 3)
    exact = np.asarray(jnp.linalg.det(target.sample(key_exact, (config.num_exact,))) > 0, np.float64)
    # all chains start on the sheet of determinant 1
    start = gx.distributions.StiefelUniform(n, n).sample(key_start, (config.num_chains,))
    start = start * jnp.where(jnp.arange(n) == 0, jnp.sign(jnp.linalg.det(start))[:, None], 1.0)[:, None, :]
    algorithm = gx.hmc(
        target.log_prob, manifold=gx.Stiefel(), step_size=0.5, num_integration_steps=3, length_jitter=0.4
    )
    run = gx.sample(
        key_run,
        algorithm,
        start,
        stacked=True,
        num_chains=config.num_chains,
        num_samples=config.num_iterations,
        num_warmup=config.num_iterations // 10,
        keep=lambda x: (jnp.linalg.det(x) > 0).astype(x.dtype),
        progress=False,
    )
    share = run["posterior"]["position"].values.mean(axis=1)
    return {
        "exact": exact.mean(),
        "exact_error": exact.std() / np.sqrt(len(exact)),
        "sampled": share.mean(),
        "sampled_error": share.std(ddof=1) / np.sqrt(len(share)),
        "closed_form": scipy.special.iv(0, 2 * k) / (1 + scipy.special.iv(0, 2 * k)) if n == 2 else None,
    }


def measure(config: Config, labels: Labels) -> Figures:
    """One piece."""
    part = labels["part"]
    if part == "form":
        return form_defects(SCHEMES[labels["scheme"]], labels["n"], labels["p"], labels["seed"])
    if part == "order":
        return energy_errors(MATCHES[labels["scheme"]], labels, config)
    if part == "long":
        return long_run(SCHEMES[labels["scheme"]], labels, config)
    if part == "stability":
        return stability(DRIFTS[labels["drift"]], labels, config)
    return sheets(labels, config)


def form_table(record: Record) -> str:
    """Defects of one step."""
    lines = [
        [
            f"{row['n']} × {row['p']}",
            row["scheme"],
            *(number(row[name], 2) for name in ("symplectic", "volume", "reversibility")),
        ]
        for row in record.rows(part="form")
    ]
    return table(["size", "scheme", "symplectic form", "volume", "reversibility"], lines, "llrrr")


def order_table(record: Record) -> str:
    """Energy errors after one unit of time."""
    lines = [
        [row["scheme"], *(number(e, 2) for e in row["errors"]), f"{row['order']:.1f}"]
        for row in record.rows(part="order")
    ]
    return table(["scheme", *(f"ε {eps}" for eps in record.config["step_sizes"]), "order"], lines)


def long_table(record: Record) -> str:
    """Energy errors along long trajectories."""
    lines = [[row["scheme"], *(number(e, 2) for e in row["errors"])] for row in record.rows(part="long")]
    return table(["scheme", *(f"{length:,} steps" for length in record.config["lengths"])], lines)


def stability_table(record: Record) -> str:
    """When the manifold is lost: the size, strength and precision in a row, the forms side by side."""
    lines = []
    for n, p in record.config["stability_shapes"]:
        for strength in record.config["strengths"]:
            for dtype in ("float32", "float64"):
                line = [f"{n} × {p}, {number(strength, 2)}, {dtype}"]
                for drift in DRIFTS:
                    row = record.row(part="stability", n=n, p=p, strength=strength, dtype=dtype, drift=drift)
                    line.append(_fate(row))
                lines.append(line)
    return table(["size, strength, precision", *DRIFTS], lines, "l" * (1 + len(DRIFTS)))


def _fate(row: dict) -> str:
    if not row["num_lost"]:
        return f"never; worst {number(row['worst'], 2)}"
    first, median, _ = (f"{v:,.0f}" for v in row["lost_at"])
    back = f"; {row['num_back']} orthonormal again in the end" if row["num_back"] else ""
    return f"{row['num_lost']} of {row['num_starts']}, the first after {first} steps, median {median}{back}"


def sheets_table(record: Record) -> str:
    """Probability of a positive determinant."""
    lines = []
    for row in record.rows(part="sheets"):
        closed = "" if row["closed_form"] is None else f"{row['closed_form']:.4f}"
        exact, sampled = (with_error(row[name], row[f"{name}_error"])[1:] for name in ("exact", "sampled"))
        lines.append([f"n = {row['n']}, k = {row['k']}", closed, exact, sampled, "1"])
    return table(["target", "closed form", "exact draws", "oHMC with reflections", "oHMC as printed"], lines)


EXPERIMENT = Experiment(
    name="orthogonal_hmc/geometry_in_print",
    config=Config(),
    smoke=Config(
        shapes=((3, 2),),
        step_sizes=(0.05, 0.025),
        lengths=(10, 20),
        num_starts=2,
        stability_shapes=((5, 2),),
        num_stability_steps=10,
        sheets=((2, 0.8),),
        num_chains=8,
        num_iterations=10,
        num_exact=1000,
    ),
    pieces=pieces,
    measure=measure,
    tables={
        "form": form_table,
        "order": order_table,
        "long": long_table,
        "stability": stability_table,
        "sheets": sheets_table,
    },
)

if __name__ == "__main__":
    main(EXPERIMENT)
