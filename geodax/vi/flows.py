r"""Planar flows, and Gaussian families transformed by them.

.. math::
    f(z) = z + \hat u \tanh(w^T z + b), \qquad
    \hat u = u + \big(m(w^T u) - w^T u\big) \frac{w}{|w|^2}, \qquad m(x) = -1 + \log(1 + e^x),
    \qquad \log|\det f'(z)| = \log\big|1 + \hat u^T w\, \tanh'(w^T z + b)\big|.

Replacing u by :math:`\hat u` makes :math:`w^T \hat u = m(w^T u)` greater than -1, so that f is increasing along w and
invertible for all u, w and b. For w = 0 the map is a translation.

Source:
    Rezende and Mohamed (2015), Variational inference with normalizing flows. ICML.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax._types import Array, PRNGKey, Scalar
from geodax.vi.families import AbstractFamily, AbstractGaussian, normal

_BISECTIONS = 70


class PlanarFlow(eqx.Module):
    """A planar flow; leading axes index independent flows.

    Args:
        u: Direction of the shift, before the constraint is applied.
        w: Direction along which the shift varies.
        b: Offset of the variation.
    """

    u: Float[Array, "*batch D"]
    w: Float[Array, "*batch D"]
    b: Float[Array, "*batch"]

    def __call__(self, z: Float[Array, "*batch D"]) -> tuple[Float[Array, "*batch D"], Float[Array, "*batch"]]:
        """Map a vector.

        Args:
            z: The vector.

        Returns:
            Its image, and the log absolute determinant of the Jacobian there.
        """
        direction, slope = self._valid()
        bend = jnp.tanh(jnp.sum(self.w * z, axis=-1) + self.b)
        # 1 + (slope - 1) (1 - bend^2), without cancellation
        return z + direction * bend[..., None], jnp.log(bend**2 + slope * (1.0 - bend**2))

    def inverse(self, y: Float[Array, "*batch D"]) -> Float[Array, "*batch D"]:
        """Return the preimage of y, by bisection along w, where the map is increasing."""
        direction, slope = self._valid()
        target = jnp.sum(self.w * y, axis=-1)
        reach = jnp.abs(slope - 1.0)

        def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = 0.5 * (low + high)
            is_low = middle + (slope - 1.0) * jnp.tanh(middle + self.b) < target
            return jnp.where(is_low, middle, low), jnp.where(is_low, high, middle)

        low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (target - reach, target + reach))
        return y - direction * jnp.tanh(0.5 * (low + high) + self.b)[..., None]

    def _valid(self) -> tuple[Array, Array]:
        """Return the constrained direction u', and 1 + w^T u'."""
        square = jnp.sum(self.w**2, axis=-1)
        has_direction = square > 0
        inner = jnp.sum(self.w * self.u, axis=-1)
        slope = jnp.where(has_direction, jax.nn.softplus(inner), 1.0)
        change = jnp.where(has_direction, (slope - 1.0 - inner) / jnp.where(has_direction, square, 1.0), 0.0)
        return self.u + change[..., None] * self.w, slope


class Flowed(AbstractFamily):
    r"""A Gaussian transformed by flows.

    Its divergence from the prior has no closed form; :meth:`kl` estimates
    :math:`E_{q_0}[\log q_0(z_0) - \sum_k \log|\det f_k'| - \log p(z_K)]` from draws.

    Args:
        base: The distribution of z_0.
        flows: The flows, applied in this order.
        num_samples: Number of draws per estimate of the divergence.
    """

    base: AbstractGaussian
    flows: tuple[PlanarFlow, ...]
    num_samples: int = eqx.field(static=True, default=1)

    @property
    def location(self) -> Float[Array, "*batch D"]:
        """The image of the base's mean, which is not the mean of the distribution."""
        return self.push(self.base.location)[0]

    def sample(self, key: PRNGKey) -> Float[Array, "*batch D"]:
        return self.push(self.base.sample(key))[0]

    def log_prob(self, z: Float[Array, "*batch D"]) -> Float[Array, "*batch"]:
        for flow in reversed(self.flows):
            z = flow.inverse(z)
        return self.base.log_prob(z) - self.push(z)[1]

    def kl(self, prior_variance: float = 1.0, *, key: PRNGKey | None = None) -> Scalar:
        """Compute an unbiased estimate of the divergence; requires a key."""
        if key is None:
            raise ValueError(
                "Flowed.kl: the divergence of a flow has no closed form and is estimated from draws; pass key=... "
                "(nn.total_kl(network, key=key))."
            )
        prior = jnp.asarray(prior_variance, self.base.location.dtype)

        def once(key: PRNGKey) -> Scalar:
            start = self.base.sample(key)
            end, log_volume = self.push(start)
            log_prior = -0.5 * jnp.sum(end**2 / prior + jnp.log(2.0 * jnp.pi * prior))
            return jnp.sum(self.base.log_prob(start) - log_volume) - log_prior

        return jnp.mean(jax.vmap(once)(jax.random.split(key, self.num_samples)))

    def push(self, z: Float[Array, "*batch D"]) -> tuple[Float[Array, "*batch D"], Float[Array, "*batch"]]:
        """Apply all flows; returns the image and the total log determinant."""
        total = jnp.zeros(z.shape[:-1], z.dtype)
        for flow in self.flows:
            z, log_volume = flow(z)
            total = total + log_volume
        return z, total


def planar(base: AbstractGaussian, num_flows: int, *, key: PRNGKey, num_samples: int = 1) -> Flowed:
    """Transform a Gaussian by planar flows initialised near the identity, in units of the base's scale.

    Args:
        base: The Gaussian.
        num_flows: Number of flows.
        key: PRNG key for the directions.
        num_samples: Number of draws per estimate of the divergence.

    Returns:
        The family.
    """
    mean = base.location
    spread = jnp.sqrt(jnp.mean(jnp.sum(base.root() ** 2, axis=-1)) + jnp.mean(mean**2))
    flows = []
    for part in jax.random.split(key, num_flows):
        key_u, key_w = jax.random.split(part)
        # where m vanishes the constrained direction is orthogonal to w, and small
        w = normal(key_w, mean.shape, mean.dtype) / (spread * mean.shape[-1] ** 0.5)
        u = 0.01 * spread * normal(key_u, mean.shape, mean.dtype)
        lift = jnp.asarray(_NO_SHIFT, mean.dtype) - jnp.sum(w * u, axis=-1)
        u = u + (lift / jnp.sum(w**2, axis=-1))[..., None] * w
        flows.append(PlanarFlow(u, w, jnp.zeros(mean.shape[:-1], mean.dtype)))
    return Flowed(base, tuple(flows), num_samples)


_NO_SHIFT = 0.5413248546129181  # log(e - 1), where m vanishes
