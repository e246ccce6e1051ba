"""Independent normal entries of arrays that are split over devices, as one distribution.

A vector of all entries would have to be cut anew, and an array has no place in it that its split keeps. Here every
array stays where it is. The numbers drawn are those of :class:`~geodax.vi.families.DiagonalGaussian` over the vector.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _tree
from geodax._random import fast_normals
from geodax._types import Array, PRNGKey, Scalar
from geodax.vi.families import FAST_FROM, DiagonalGaussian, normal


class GaussianArrays(eqx.Module):
    """Independent normal entries of several arrays.

    Attributes:
        mean: Means by name.
        log_scale: Logarithms of the standard deviations by name.
        names: The names in the order of the vector.
    """

    mean: dict[str, Array]
    log_scale: dict[str, Array]
    names: tuple[str, ...] = eqx.field(static=True)

    @property
    def location(self) -> dict[str, Array]:
        """The means."""
        return self.mean

    def arranged(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """Return values by name, from those in the order of the vector."""
        return dict(zip(self.names, arrays, strict=True))

    def noise(self, key: PRNGKey, like: Mapping[str, Array]) -> dict[str, Array]:
        """Draw standard normal arrays, each in its place."""
        arrays = [like[name] for name in self.names]
        *ends, total = itertools.accumulate(x.size for x in arrays)
        dtype = arrays[0].dtype
        if jnp.finfo(dtype).bits <= 32 and total >= FAST_FROM:
            return self.arranged([x.astype(dtype) for x in fast_normals(key, [x.shape for x in arrays])])
        # moved from device to device, as the generator of double precision has no place in a vector
        pieces = zip(jnp.split(normal(key, (total,), dtype), ends), arrays, strict=True)
        return self.arranged([piece.reshape(x.shape) for piece, x in pieces])

    def sample(self, key: PRNGKey) -> dict[str, Array]:
        """Draw the arrays."""
        noise = self.noise(key, self.mean)
        return jax.tree.map(lambda m, s, e: m + jnp.exp(s) * e, self.mean, self.log_scale, noise)

    def log_prob(self, z: Mapping[str, Array]) -> Scalar:
        """Compute the log density at arrays."""
        of_entries = jax.tree.map(
            lambda m, s, x: jax.scipy.stats.norm.logpdf(x, m, jnp.exp(s)), self.mean, self.log_scale, z
        )
        return _tree.total([jnp.sum(x) for x in jax.tree.leaves(of_entries)])

    def kl(self, prior_variance: Any = 1.0, *, key: PRNGKey | None = None) -> Scalar:
        """Compute the exact divergence from normal entries of a variance, one number or one for each name."""
        given = prior_variance if isinstance(prior_variance, Mapping) else dict.fromkeys(self.names, prior_variance)
        return _tree.total([DiagonalGaussian(self.mean[n], self.log_scale[n]).kl(given[n]) for n in self.names])
