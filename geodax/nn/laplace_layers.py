r"""Laplace approximation over dense layers of a trained network, with Kronecker-factored, diagonal or full precision.

With the Gauss-Newton matrix :math:`G_l = U_l \mathrm{diag}(\gamma_l) U_l^T` of a layer or of all layers together
(:mod:`geodax.nn.gauss_newton`), the posterior of its parameters is normal at the trained values :math:`\hat\theta_l`
with the precision :math:`U_l \mathrm{diag}(\beta \gamma_l + \delta_l) U_l^T`. Here :math:`\delta_l` is the precision of
the prior and :math:`\beta = \sigma^{-2}` that of normal noise, 1 for classes. Both are added exactly in the
eigenbasis, so that the marginal likelihood

.. math::
    \log p(\mathcal{D}) \approx \log p(\mathcal{D} \mid \hat\theta) + \tfrac12 \sum_l \Big[ D_l \log \delta_l
    - \delta_l |\hat\theta_l|^2 - \sum_j \log (\beta \gamma_{lj} + \delta_l) \Big]

costs one pass over the eigenvalues. It is concave in :math:`\log \delta_l` and :math:`\log \beta`.

Sources:
    MacKay (1992), A practical Bayesian framework for backpropagation networks. Neural Computation.
    Ritter, Botev and Barber (2018), A scalable Laplace approximation for neural networks. ICLR.
    Immer, Bauer, Fortuin, Rätsch and Khan (2021), Scalable marginal likelihood estimation for model selection in deep
    learning. ICML.
    Daxberger, Kristiadi, Immer, Eschenhagen, Bauer and Hennig (2021), Laplace redux. NeurIPS.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float

from geodax import _checks, _tree
from geodax._types import Array, Position, PRNGKey, PyTree, SamplingAlgorithm, Scalar
from geodax.nn.evidence import maximum, unbounded, warn_if_vague
from geodax.nn.gauss_newton import Block, Taps, blocks_of, traces, weighted_sum
from geodax.nn.likelihoods import WithNoise, apply_network
from geodax.nn.linearised import linearised
from geodax.nn.structure import geometry
from geodax.vi.dense import extended, layers_at, matrix_of, replaced, with_matrix
from geodax.vi.families import normal
from geodax.vi.modules import AbstractWhole

_OWNER = "LaplacePosterior"
_LOG_2PI = math.log(2.0 * math.pi)
_MOST_ROUNDS = 1000
_SETTLED = 1e-5  # change of the logarithm of a noise; eigenvalues are in single precision
_EXAMPLES_AT_A_TIME = {True: 8, False: 32}  # by is_joint: then the Jacobian is in memory


class LinearisedOutputs(NamedTuple):
    """Normal distribution of the outputs of a network that is linear in its parameters.

    Attributes:
        mean: Outputs at the trained parameters.
        covariance: Covariance over the outputs of each example, without noise; one output counts as a vector of one.
    """

    mean: Float[Array, "examples ..."]
    covariance: Float[Array, "examples outputs outputs"]

    @property
    def variance(self) -> Float[Array, "examples ..."]:
        """Variance of every output, without noise."""
        return jnp.diagonal(self.covariance, axis1=1, axis2=2).reshape(self.mean.shape)

    def probabilities(self) -> Float[Array, "examples classes"]:
        r"""Approximate the mean probabilities of classes by MacKay's formula for a logit.

        With the means :math:`m_c` and variances :math:`v_c` of the logit of c minus the mean of the other logits, the
        result is the softmax of :math:`(1 - 1/C)\, m_c / \sqrt{1 + \pi v_c / 8}`. It does not change if a number is
        added to all logits, which the data do not determine. With two classes it is MacKay's formula.

        Raises:
            ValueError: If the outputs are not vectors of two or more logits.

        Source:
            MacKay (1992), The evidence framework applied to classification networks. Neural Computation.
        """
        if self.mean.ndim != 2 or self.mean.shape[1] < 2:
            raise ValueError(
                f"LinearisedOutputs: expected logits of at least two classes, found outputs of shape "
                f"{self.mean.shape}; for numbers use mean and variance."
            )
        share = 1.0 - 1.0 / self.mean.shape[1]
        common = jnp.mean(self.covariance, axis=2)
        variances = self.variance - 2.0 * common + jnp.mean(common, axis=1, keepdims=True)
        centred = self.mean - jnp.mean(self.mean, axis=1, keepdims=True)
        return jax.nn.softmax(centred / jnp.sqrt(1.0 + math.pi / 8.0 * variances / share**2))


class DrawnState(NamedTuple):
    """A drawn network and its log density under the posterior it was drawn from."""

    position: Position
    logdensity: Scalar


class LaplacePosterior(AbstractWhole):
    """Normal posterior over dense layers of a network, made by :func:`~geodax.nn.laplace_posterior`.

    :func:`equinox.tree_serialise_leaves` saves it, and :func:`equinox.tree_deserialise_leaves` reads it into one that
    :func:`~geodax.nn.laplace_posterior` makes with the same arguments for an untrained network and any rows.

    Attributes:
        network: The trained network, the mean.
        blocks: Gauss-Newton matrices, one a layer, or one in all for full precision; at unit noise, or at that of the
            targets if each has its own.
        log_prior_precision: Logarithms of the prior's precisions, one a block.
        log_noise: Logarithm of the noise's standard deviation, or of each target's; None for classes.
        misfit: Sum of the squared residuals, of each target if it has its own noise; for classes, minus the sum of the
            log likelihoods.
        shares: What each target adds to the Gauss-Newton matrices at unit noise; None if it does not have its own.
        num_targets: Number of observed numbers, each as often as its weight says.
        is_joint: Whether one block holds all layers.
        places: Places of the layers among the nodes of the network.
    """

    network: PyTree
    blocks: tuple[Block, ...]
    log_prior_precision: Float[Array, " blocks"]
    log_noise: Float[Array, "*targets"] | None
    misfit: Float[Array, "*targets"]
    shares: Any
    num_targets: float  # saved with the arrays
    is_joint: bool = eqx.field(static=True)
    places: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, x: Any, *, key: PRNGKey | None = None) -> Any:
        network: Any = self.network if key is None else self.sample(key)
        return network(x)

    @property
    def prior_variance(self) -> Float[Array, " blocks"]:
        """Variance of the prior of the parameters of each block."""
        return jnp.exp(-self.log_prior_precision)

    def sample(self, key: PRNGKey) -> Position:
        keys = jax.random.split(key, len(self.blocks))
        steps = [
            block.outward(normal(keys[i], values.shape, values.dtype) / jnp.sqrt(values))
            for i, (block, values) in enumerate(zip(self.blocks, self._precisions(), strict=True))
        ]

        def moved(layers: list[Any]) -> list[Any]:
            matrices = [_tree.widened(matrix_of(layer)) for layer in layers]
            parts = steps
            if self.is_joint:
                ends = np.cumsum([matrix.size for matrix in matrices])[:-1]
                parts = jnp.split(steps[0][:, 0], ends)
            return [
                with_matrix(layer, matrix + part.reshape(matrix.shape))
                for layer, matrix, part in zip(layers, matrices, parts, strict=True)
            ]

        return replaced(self.network, self.places, moved)

    def sampler(self) -> SamplingAlgorithm:
        """Return a sampling algorithm of independent draws, for :func:`geodax.sample`.

        Positions are the arrays of the network: start from ``equinox.filter(network, equinox.is_inexact_array)``.
        """
        self._warn_if_vague()

        def state(network: Position) -> DrawnState:
            arrays = eqx.filter(network, eqx.is_inexact_array)
            return DrawnState(arrays, self.log_prob(arrays))

        # orthonormal weights of other layers stay where they are
        manifold = geometry(eqx.filter(self.network, eqx.is_inexact_array))
        return SamplingAlgorithm(state, lambda key, previous: (state(self.sample(key)), {}), manifold=manifold)

    def log_prob(self, position: Position) -> Scalar:
        """Compute the log density of the layers of a network."""
        pairs = zip(layers_at(position, self.places), layers_at(self.network, self.places), strict=True)
        steps = self._in_blocks([matrix_of(layer) - matrix_of(mean) for layer, mean in pairs])
        parts = [
            0.5 * jnp.sum(jnp.log(values) - values * block.inward(step) ** 2 - _LOG_2PI)
            for block, values, step in zip(self.blocks, self._precisions(), steps, strict=True)
        ]
        return sum(parts[1:], parts[0])

    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        parts = []
        for values, log_delta, mean in self._by_block():
            ratio = jnp.exp(log_delta) / values
            parts.append(0.5 * jnp.sum(ratio - 1.0 - jnp.log(ratio) + jnp.exp(log_delta) * mean * mean))
        return sum(parts[1:], parts[0])

    def log_marginal_likelihood(self) -> Scalar:
        """Compute Laplace's approximation of the log density of the data, given the layers that stay fixed.

        It is exact for a linear network with normal noise at the mode of its posterior.
        """
        if self.log_noise is None:
            total = -self.misfit
        else:
            squares = jnp.sum(jnp.exp(-2.0 * self.log_noise) * self.misfit)
            total = -0.5 * squares - self.num_targets * (jnp.mean(self.log_noise) + 0.5 * _LOG_2PI)
        for values, log_delta, mean in self._by_block():
            total = total + 0.5 * jnp.sum(log_delta - jnp.exp(log_delta) * mean * mean - jnp.log(values))
        return total

    def maximised(self, *, noise: bool | None = None, shared: bool = False) -> "LaplacePosterior":
        """Return the posterior with the prior precisions, and the noise, that maximise the marginal likelihood.

        The trained parameters and the Gauss-Newton matrices stay: train again with the new prior and repeat, until
        nothing changes, for the maximum of both.

        Args:
            noise: Whether the noise is maximised too; None if the network has a :class:`~geodax.nn.WithNoise`.
            shared: Whether all layers have one prior precision.

        Returns:
            The posterior; a :class:`~geodax.nn.WithNoise` in its network has the new noise.

        Raises:
            ValueError: If there is no maximum: all parameters or all residuals are zero. Or if ``noise`` is true for
                classes.
        """
        noise = _holds_noise(self.network) if noise is None else noise
        if noise and self.log_noise is None:
            raise ValueError("LaplacePosterior: classes have no noise; leave out noise=True.")
        if noise and self.shares is not None:
            return self._with_noise_of_each(shared)
        beta = 1.0 if noise else float(self._noise_precision())
        own = np.asarray(self.log_prior_precision, np.float64)
        means = [mean for *_, mean in self._by_block()]
        groups = [
            (beta * np.asarray(block.values, np.float64).ravel(), float(jnp.sum(mean * mean)))
            for block, mean in zip(self.blocks, means, strict=True)
        ]
        if shared:
            groups = [(np.concatenate([values for values, _ in groups]), sum(square for _, square in groups))]
        start = [own.mean()] if shared else list(own)
        residuals = (float(self.misfit), self.num_targets) if noise else None
        if noise and self.log_noise is not None:
            start.append(-2.0 * float(self.log_noise))
        u = maximum(groups, residuals, start)
        precision = jnp.asarray(np.broadcast_to(u[:1], own.shape) if shared else u[: len(own)], self.misfit.dtype)
        found = eqx.tree_at(lambda node: node.log_prior_precision, self, precision)
        return found._with_noise(jnp.asarray(-0.5 * u[-1], self.misfit.dtype)) if noise else found

    def _with_noise_of_each(self, shared: bool) -> "LaplacePosterior":
        """Maximise over the prior and over the noise of the targets in turn, the latter by steps of EM."""
        found, number = self, self.num_targets / self.misfit.size
        for _ in range(_MOST_ROUNDS if bool(jnp.all(self.misfit > 0)) else 0):
            found = found.maximised(noise=False, shared=shared)
            spreads = traces(self.shares, found.blocks, found._precisions(), number)
            log_noise = 0.5 * jnp.log((self.misfit + spreads.reshape(self.misfit.shape)) / number)
            previous, found = found.log_noise, found._with_noise(log_noise)
            change = jnp.abs(log_noise - jnp.asarray(previous)).max()
            if change < _SETTLED:
                return found
        raise unbounded()

    def linearised(self, x: PyTree) -> LinearisedOutputs:
        """Compute the distribution of the outputs of the network linearised at the trained parameters.

        Args:
            x: Examples: arrays whose first axis indexes them.

        Returns:
            Means and covariances, exact for the linearised network: outputs x outputs numbers an example.

        Warns:
            UserWarning: If draws fit the training data of a classifier far worse than the network, also in
                :meth:`sample_linearised` and :meth:`sampler`.
        """
        self._warn_if_vague()
        x = jax.tree.map(jnp.asarray, x)
        return LinearisedOutputs(*self._linearised(x))

    @eqx.filter_jit
    def _linearised(self, x: PyTree) -> tuple[Array, Array]:
        network = self.network
        taps = Taps(_OWNER, network, lambda network: layers_at(network, self.places))
        layers = layers_at(network, self.places)
        variances = [1.0 / values for values in self._precisions()]

        def one(x: PyTree) -> Array:
            y, pull, inputs = jax.vjp(
                lambda shifts: taps.call(network, shifts, x)[:2], taps.shifts(network), has_aux=True
            )
            inputs = [extended(layer, a) for layer, a in zip(layers, inputs, strict=True)]
            (g,) = jax.vmap(pull)(jnp.eye(y.size, dtype=y.dtype))
            g = [_tree.widened(part.reshape(y.size, -1)) for part in g]
            if self.is_joint:
                parts = [
                    (part[:, :, None] * a[None, None]).reshape(y.size, -1) for part, a in zip(g, inputs, strict=True)
                ]
                g, inputs = [jnp.concatenate(parts, axis=1)], [jnp.ones(1, g[0].dtype)]
            covariance = jnp.zeros((y.size, y.size), variances[0].dtype)
            for block, variance, part, a in zip(self.blocks, variances, g, inputs, strict=True):
                rows = part if block.left is None else part @ block.left
                columns = a if block.right is None else a @ block.right
                covariance = covariance + (rows * (variance @ (columns * columns))[None]) @ rows.T
            return covariance

        size = _EXAMPLES_AT_A_TIME[self.is_joint]
        return apply_network(network, x), jax.lax.map(one, x, batch_size=size)

    def sample_linearised(
        self, key: PRNGKey, x: PyTree, *, num_samples: int = 64
    ) -> Float[Array, "draws examples ..."]:
        """Draw outputs of the linearised network, each draw one function of the examples.

        Args:
            key: A PRNG key.
            x: Examples: arrays whose first axis indexes them.
            num_samples: Number of draws.

        Returns:
            Outputs without noise, for :func:`geodax.predictive.classes_from_logits`, for instance.
        """
        key = _checks.random_key("LaplacePosterior", key)
        num_samples = _checks.whole("LaplacePosterior", "num_samples", num_samples)
        self._warn_if_vague()
        x = jax.tree.map(jnp.asarray, x)

        def once(key: PRNGKey) -> Array:
            return apply_network(linearised(self.network, self.sample(key)), x)

        return jax.lax.map(once, jax.random.split(key, num_samples))

    def _warn_if_vague(self) -> None:
        """Warn in a method that was called, which Equinox wraps as it does this one."""
        if self.log_noise is None and not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(self)):
            pairs = zip(self.blocks, self._precisions(), strict=True)
            num_determined = sum(float(jnp.sum(block.values / values)) for block, values in pairs)
            warn_if_vague(_OWNER, num_determined, float(self.misfit), self.num_targets)

    def _precisions(self) -> list[Array]:
        """Eigenvalues of the precision of each block."""
        noise = self._noise_precision()
        deltas = jnp.exp(self.log_prior_precision)
        return [noise * block.values + deltas[i] for i, block in enumerate(self.blocks)]

    def _noise_precision(self) -> Any:
        """What the blocks are multiplied by: 1 if they have the noise of each target in them."""
        return 1.0 if self.log_noise is None or self.log_noise.ndim else jnp.exp(-2.0 * self.log_noise)

    def _by_block(self) -> list[tuple[Array, Array, Array]]:
        """Precisions, logarithm of the prior's precision, and means of each block."""
        means = self._in_blocks([matrix_of(layer) for layer in layers_at(self.network, self.places)])
        return list(zip(self._precisions(), self.log_prior_precision, means, strict=True))

    def _in_blocks(self, matrices: list[Array]) -> list[Array]:
        matrices = _tree.widened(matrices)
        if not self.is_joint:
            return matrices
        return [jnp.concatenate([matrix.reshape(-1) for matrix in matrices])[:, None]]

    def _with_noise(self, log_noise: Float[Array, "*targets"]) -> "LaplacePosterior":
        found = eqx.tree_at(lambda node: node.log_noise, self, log_noise)
        if self.shares is not None:
            sums = weighted_sum(self.shares, jnp.exp(-2.0 * log_noise).reshape(-1))
            blocks = blocks_of(sums, self.num_targets / log_noise.size)
            found = eqx.tree_at(lambda node: node.blocks, found, blocks)
        if not _holds_noise(self.network):
            return found
        held = self.network.log_noise  # type: ignore[attr-defined]
        return eqx.tree_at(lambda node: node.network.log_noise, found, log_noise.astype(held.dtype))


def _holds_noise(network: PyTree) -> bool:
    return isinstance(network, WithNoise)
