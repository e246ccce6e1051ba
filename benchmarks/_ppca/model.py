"""The data, the model in two forms of the same density, and what is compared.

As a user writes it, each row is an observation of a normal law whose covariance has low rank but for the noise. As a function of
statistics, the same log likelihood needs the scatter matrix S = X^T X only,

    -N/2 (sum_k log(s_k^2 + t^2) + (n - p) log t^2) - (tr S - sum_k s_k^2 / (s_k^2 + t^2) w_k^T S w_k) / (2 t^2) + constant

with scales s and noise t: n^2 p operations a gradient for n p N.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist

import geodax as gx
from geodax.interop import numpyro as gxn

FORMS = ("as written", "statistics")


class LoopGivens(gx.transforms.Givens):
    """The same chart with one rotation after the other, differentiated by JAX."""

    def forward_and_log_volume(self, z):
        theta = self.angles(z)
        i, j = (jnp.asarray(x) for x in np.triu_indices(self.p, 1, self.n))

        def rotate(q, rotation):
            i, j, angle = rotation
            c, s = jnp.cos(angle), jnp.sin(angle)
            upper, lower = q[i], q[j]
            return q.at[i].set(c * upper - s * lower).at[j].set(s * upper + c * lower), None

        q, _ = jax.lax.scan(rotate, jnp.eye(self.n, self.p), (i, j, theta), reverse=True)
        return q, super().log_volume(z)


class Problem(NamedTuple):
    """Data and the classical solution.

    Attributes:
        x: Rows in and around a plane, N x n.
        p: Number of columns of W.
        w: First principal axes, n x p.
        scale: Standard deviations along them without the noise, p.
        noise: Standard deviation of what is left.
    """

    x: jax.Array
    p: int
    w: jax.Array
    scale: jax.Array
    noise: float

    @property
    def n(self) -> int:
        return self.x.shape[1]


def simulate(n: int, p: int, num_rows: int) -> Problem:
    """Rows of the model; for (3, 2) with the parameters of the paper's example."""
    rng = np.random.default_rng(0)
    scale = np.ones(p) if n == 3 else np.linspace(5.0, 2.0, p)
    noise = 1.0 if n == 3 else 0.5
    w = np.eye(n, p) if n == 3 else np.linalg.qr(rng.standard_normal((n, p)))[0]
    z = rng.standard_normal((num_rows, p))
    x = (z * scale) @ w.T + noise * rng.standard_normal((num_rows, n))
    _, singular, axes = np.linalg.svd(x, full_matrices=False)
    variance = singular**2 / num_rows
    left = np.sqrt(variance[p:].mean())
    found = np.sqrt(np.maximum(variance[:p] - left**2, 0.1 * left**2))
    return Problem(jnp.asarray(x), p, jnp.asarray(axes[:p].T), jnp.asarray(found), float(left))


def model(problem: Problem, form: str, chart=None):
    """The model for NumPyro, a function without arguments."""
    x, p, n = problem.x, problem.p, problem.n
    scatter, num_rows = x.T @ x, len(x)

    def parameters():
        w = numpyro.sample("w", gxn.StiefelUniform(n, p, chart=chart))
        scale = numpyro.sample("scale", dist.HalfNormal(5.0).expand([p]).to_event(1))
        return w, scale, numpyro.sample("noise", dist.HalfNormal(2.0))

    def as_written():
        w, scale, noise = parameters()
        with numpyro.plate("rows", num_rows):
            covariance = dist.LowRankMultivariateNormal(jnp.zeros(n), w * scale, noise**2 * jnp.ones(n))
            numpyro.sample("x", covariance, obs=x)

    def by_statistics():
        w, scale, noise = parameters()
        variance = scale**2 + noise**2
        log_determinant = jnp.sum(jnp.log(variance)) + 2 * (n - p) * jnp.log(noise)
        along = jnp.sum(w * (scatter @ w), axis=0)
        form = (jnp.trace(scatter) - jnp.sum(scale**2 / variance * along)) / noise**2
        numpyro.factor("x", -0.5 * (num_rows * (log_determinant + n * np.log(2 * np.pi)) + form))

    return as_written if form == "as written" else by_statistics


def starts(problem: Problem, num_chains: int) -> list[dict]:
    """Values of the sites near the classical solution, the same for all samplers; a chain each."""
    generator = np.random.default_rng(1)
    found = []
    for _ in range(num_chains):
        shift = 0.2 / np.sqrt(problem.n) * generator.standard_normal(problem.w.shape)
        stretch = np.exp(0.1 * generator.standard_normal(problem.p))
        w = gx.Stiefel().nearest(problem.w + shift)
        noise = jnp.asarray(problem.noise * np.exp(0.1 * generator.standard_normal()))
        found.append({"w": w, "scale": problem.scale * stretch, "noise": noise})
    return found


def seen(values):
    """Entries of the covariance matrix and the noise: what signs and order of the columns do not change."""
    w, scale, noise = values["w"], values["scale"], values["noise"]
    covariance = (w * scale**2) @ w.T
    n = len(covariance)
    entries = covariance[np.triu_indices(n)] if n < 10 else jnp.concatenate([jnp.diagonal(covariance), covariance[0]])
    return jnp.concatenate([entries, noise[None]])
