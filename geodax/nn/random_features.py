r"""Gaussian processes by random features: fixed random projections, a fixed nonlinearity, a linear layer.

With rows :math:`\omega_k \sim N(0, I)` and inputs divided by length scales :math:`\ell`, the features
:math:`\phi(x)` have :math:`E[\phi(x)^T \phi(x')] = k(x, x')`:

====================================  ==========================================================================
kernel                                features
====================================  ==========================================================================
``"rbf"``                             :math:`a \sqrt{2 / n} \cos(\omega_k^T x + b_k)`, b uniform on the circle;
                                      :math:`k = a^2 \exp(-|x - x'|^2 / 2)`
``"arc-cosine"``                      :math:`a \sqrt{2 / n} \max(\omega_k^T x, 0)`;
                                      :math:`k = \tfrac{a^2}{\pi} |x| |x'| (\sin\theta + (\pi - \theta) \cos\theta)`
====================================  ==========================================================================

(:math:`\theta` is the angle between x and x'.) With standard normal weights the output of a linear layer is a draw from
the Gaussian process with that kernel, up to the error of finitely many features.

Sources:
    Rahimi and Recht (2008), Random features for large-scale kernel machines. NeurIPS.
    Cho and Saul (2009), Kernel methods for deep learning. NeurIPS.
    Cutajar, Bonilla, Michiardi and Filippone (2017), Random feature expansions for deep Gaussian processes. ICML.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, UInt

from geodax import _checks
from geodax._types import Array, PRNGKey
from geodax.nn.hadamard import WHVILinear
from geodax.nn.layers import check_sizes
from geodax.nn.mean_field import FullCovarianceLinear, MeanFieldLinear
from geodax.vi.modules import AbstractVariational

KERNELS = ("rbf", "arc-cosine")


class RandomFeatures(eqx.Module):
    """Random features of a kernel, with optimised length scales and amplitude.

    The projections are stored as integers with the same bits, so optimisers, Equinox's gradients and
    ``equinox.partition(network, equinox.is_inexact_array)`` do not treat them as parameters. They are saved with the
    module.

    Args:
        in_features: Number of inputs.
        num_features: Number of features.
        kernel: ``"rbf"`` or ``"arc-cosine"`` (of order 1).
        lengthscale: Initial length scale of every input.
        amplitude: Initial amplitude a.
        dtype: Dtype of the parameters.
        key: PRNG key for the projections, which stay fixed.

    Attributes:
        log_lengthscales: One per input.
        log_amplitude: A scalar.
        projection_bits: Bits of the projections, n x in; in double precision n x in x 2.
        phase_bits: Bits of the phases b, n; in double precision n x 2.
        kernel: Name of the kernel.
        dtype: Name of the dtype in which the projections and phases were drawn.
    """

    log_lengthscales: Float[Array, " in"]
    log_amplitude: Float[Array, ""]
    projection_bits: UInt[Array, "n in *words"]
    phase_bits: UInt[Array, "n *words"]
    kernel: str = eqx.field(static=True)
    dtype: str = eqx.field(static=True)

    def __init__(
        self,
        in_features: int,
        num_features: int,
        *,
        kernel: str = "rbf",
        lengthscale: float = 1.0,
        amplitude: float = 1.0,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        in_features, num_features = check_sizes("RandomFeatures", in_features=in_features, num_features=num_features)
        _checks.chosen("RandomFeatures", "kernel", kernel, tuple(KERNELS))
        key, dtype = _checks.random_key("RandomFeatures", key), _checks.real_dtype("RandomFeatures", dtype)
        lengthscale = _checks.number("RandomFeatures", "lengthscale", lengthscale, above=0.0)
        amplitude = _checks.number("RandomFeatures", "amplitude", amplitude, above=0.0)
        key_projection, key_phase = jax.random.split(key)
        self.log_lengthscales = jnp.full(in_features, math.log(lengthscale), dtype)
        self.log_amplitude = jnp.asarray(math.log(amplitude), dtype)
        projection = jax.random.normal(key_projection, (num_features, in_features), dtype)
        self.projection_bits = _bits(projection)
        self.phase_bits = _bits(jax.random.uniform(key_phase, (num_features,), dtype, 0.0, 2.0 * math.pi))
        self.kernel, self.dtype = kernel, projection.dtype.name

    def __call__(self, x: Float[Array, " in"], *, key: PRNGKey | None = None) -> Float[Array, " n"]:
        """Compute the features of one vector."""
        x = _checks.vector("RandomFeatures", x, self.projection_bits.shape[1])
        projected = self.projection @ (x * jnp.exp(-self.log_lengthscales))
        values = jnp.cos(projected + self.phase) if self.kernel == "rbf" else jax.nn.relu(projected)
        return jnp.exp(self.log_amplitude) * math.sqrt(2.0 / len(self.phase_bits)) * values

    @property
    def projection(self) -> Float[Array, "n in"]:
        """The projections, one per row."""
        return self._numbers(self.projection_bits)

    @property
    def phase(self) -> Float[Array, " n"]:
        """The phases b."""
        return self._numbers(self.phase_bits)

    def _numbers(self, bits: Array) -> Array:
        dtype = jnp.dtype(self.dtype)
        if bits.dtype != _word(dtype):
            raise TypeError(
                f"RandomFeatures: expected projection bits of dtype {_word(dtype).name}, found {bits.dtype}; cast only "
                "floating-point arrays: jax.tree.map(lambda a: a.astype(dtype) if equinox.is_inexact_array(a) "
                "else a, network)."
            )
        if jax.dtypes.canonicalize_dtype(dtype) != dtype:
            raise TypeError(
                f"RandomFeatures: its projections were drawn in {dtype.name}, which JAX supports only after "
                'jax.config.update("jax_enable_x64", True); enable it, or create the layer again.'
            )
        return jax.lax.bitcast_convert_type(bits, dtype).astype(self.log_lengthscales.dtype)


class RandomFeatureGP(eqx.Module):
    """A Gaussian process as a network of random features and a variational linear layer.

    Args:
        in_features: Number of inputs.
        out_features: Number of independent processes.
        num_features: Number of features n.
        kernel: ``"rbf"`` or ``"arc-cosine"``.
        weights: ``"mean-field"``: 2 n parameters per output; ``"full"``: n + n (n + 1) / 2; ``"whvi"``: 4 times the
            root of n, with the weights of an output as the vec of a Walsh-Hadamard matrix.
        lengthscale: Initial length scale of every input.
        amplitude: Initial amplitude.
        dtype: Dtype of the parameters.
        key: PRNG key for features and weights.
        **options: Further arguments of :class:`~geodax.nn.MeanFieldLinear`, :class:`~geodax.nn.FullCovarianceLinear` or
            :class:`~geodax.nn.WHVILinear`. Pass ``local=False`` for the first two if one example passes through the
            process several times and other code than :func:`geodax.vi.fit` supplies the keys.

    Attributes:
        features: The :class:`RandomFeatures`.
        layer: The linear layer, without bias, under the prior N(0, I).
    """

    features: RandomFeatures
    layer: AbstractVariational

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        num_features: int,
        kernel: str = "rbf",
        weights: str = "mean-field",
        lengthscale: float = 1.0,
        amplitude: float = 1.0,
        dtype: Any = jnp.float32,
        key: PRNGKey,
        **options: Any,
    ):
        in_features, out_features, num_features = check_sizes(
            "RandomFeatureGP", in_features=in_features, out_features=out_features, num_features=num_features
        )
        key = _checks.random_key("RandomFeatureGP", key)
        key_features, key_weights = jax.random.split(key)
        self.features = RandomFeatures(
            in_features,
            num_features,
            kernel=kernel,
            lengthscale=lengthscale,
            amplitude=amplitude,
            dtype=dtype,
            key=key_features,
        )
        common: dict[str, Any] = {"use_bias": False, "dtype": dtype, "key": key_weights} | options
        _checks.chosen("RandomFeatureGP", "weights", weights, ("mean-field", "full", "whvi"))
        if weights == "whvi":
            self.layer = WHVILinear(num_features, out_features, column=True, **common)
        else:
            kind = MeanFieldLinear if weights == "mean-field" else FullCovarianceLinear
            self.layer = kind(num_features, out_features, **common)

    def __call__(self, x: Float[Array, " in"], *, key: PRNGKey | None = None) -> Float[Array, " out"]:
        """Compute the processes at one vector."""
        layer: Any = self.layer
        return layer(self.features(x), key=key)


def _bits(values: Float[Array, "..."]) -> UInt[Array, "..."]:
    """Integers with the same bits; two per number in double precision, so that 64-bit integers are not truncated."""
    return jax.lax.bitcast_convert_type(values, _word(values.dtype))


def _word(dtype: Any) -> Any:
    return jnp.dtype(jnp.uint16 if jnp.dtype(dtype).itemsize == 2 else jnp.uint32)
