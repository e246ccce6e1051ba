r"""Modes of the posterior of the hidden Markov network model, and initial positions for chains.

Windows with thousands of contacts determine their states so precisely that the posterior has many modes, hundreds of
units of log density apart, between which no chain moves: other partitions of the windows and, for Poisson counts, other
assignments of the columns of a W to classes. A chain from an arbitrary initial position stays in the nearest mode. The
modes are therefore found first, by expectation maximisation from many partitions. All chains start near the highest, at
points drawn from a normal distribution of twice the width given by the curvature there. The other modes are kept too
(:class:`NetworkMode`): if the second is less than about ten units below the first, it may hold posterior mass that the
chains miss, which R-hat cannot detect.

The E-step is the forward-backward recursion; the smoothed probabilities and expected transitions are derivatives of
the log likelihood with respect to log emissions and log transitions. The M-step is a low-rank fit for each state
(:mod:`geodax.models.network.low_rank_counts`), a line search for its dispersion, and for the transitions the expected
numbers plus the prior's. All of these raise the density of :func:`geodax.models.network.density.log_density`, so modes
are compared in the coordinates of the sampler.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from geodax._types import Position, PRNGKey
from geodax.models.network import density, hidden_markov, low_rank_counts
from geodax.models.network.counts import NetworkCounts
from geodax.models.network.density import NetworkParameters, NetworkPrior
from geodax.models.network.low_rank_counts import Factors, WeightedCounts
from geodax.models.network.order import identified, state_order

_MOST_ROUNDS = 50
_CLOSE = 0.05  # in log density: convergence tolerance
_SAME = 1.0  # in log density: modes closer than this are merged
_NOISES = (0.0, 0.3, 0.3, 0.3, 0.3, 1.0, 1.0, 1.0)
_DISPERSIONS = (1e-6, 1e3)
_MOST_MOVED = 0.5  # fraction of the windows


class NetworkMode(NamedTuple):
    """A local maximum of the posterior.

    Attributes:
        log_density: Log density in the coordinates of :func:`geodax.models.network.density.log_density`.
        theta: The parameters, with states in the reported order.
        probabilities: Probabilities of the states in each window, T x K.
        moves: Expected number of transitions from the row's state to the column's.
        num_starts: Number of starts that converged to this mode.
    """

    log_density: float
    theta: NetworkParameters
    probabilities: Float[np.ndarray, "T K"]
    moves: Float[np.ndarray, "K K"]
    num_starts: int = 1


def find_modes(
    data: NetworkCounts, num_states: int, rank: int, prior: NetworkPrior, *, num_starts: int = 20, seed: int = 0
) -> list[NetworkMode]:
    """Run expectation maximisation from many partitions of the windows; return the modes found, highest first.

    Partitions that are equal are used once. The seed is that of the partitions and of the perturbations of the fits.
    """
    generator = np.random.default_rng(seed)
    with jax.enable_x64(True):
        climber = _Climber(data, num_states, rank, prior, generator)
        found = [climber.climb(clusters) for clusters in _partitions(data, num_states, num_starts, generator)]
    modes: list[NetworkMode] = []
    for mode in sorted(found, key=lambda mode: -mode.log_density):
        same = next((i for i, other in enumerate(modes) if _is_same(mode, other)), None)
        if same is None:
            modes.append(mode)
        else:
            modes[same] = modes[same]._replace(num_starts=modes[same].num_starts + 1)
    return modes


def starting_point(
    key: PRNGKey, mode: NetworkMode, data: NetworkCounts, prior: NetworkPrior, *, spread: float = 2.0
) -> Position:
    """Draw a point near a mode, overdispersed with respect to the posterior so that chains start apart.

    Log rates are drawn from the normal distribution given by the Fisher information of each state, and moved towards
    the mode until the log density falls by at most twice its expected fall under that distribution; transitions are
    drawn from the Dirichlet distribution of the expected transitions. ``spread`` multiplies the standard deviations.
    """
    # NumPy seeded by the key avoids compilation
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    theta, states = mode.theta, range(len(mode.moves))
    near = []
    for k in states:
        at = Factors(*(np.asarray(leaf)[None, k] for leaf in theta[:3]))
        problem = _problem(data, prior, mode.probabilities[:, k], float(theta.dispersion[k]))
        near.append(_near(problem, at, spread, generator))
    concentration = mode.moves + prior.transition_concentration
    # keep the width of narrow Dirichlet draws, but avoid zero entries in wide ones
    transition = np.stack([generator.dirichlet(np.maximum(row, 0.5)) for row in concentration])
    drawn = theta._replace(
        vectors=np.stack([factors.vectors[0] for factors in near]),
        eigenvalues=np.stack([factors.eigenvalues[0] for factors in near]),
        intercept=np.stack([factors.intercept[0] for factors in near]),
        transition=np.maximum(transition, 1e-6),
        dispersion=theta.dispersion * np.exp(0.1 * spread * generator.standard_normal(len(mode.moves))),
    )
    return _position(drawn, data, prior)


class _Climber:
    def __init__(
        self, data: NetworkCounts, num_states: int, rank: int, prior: NetworkPrior, generator: np.random.Generator
    ):
        self.data, self.num_states, self.rank, self.prior = data, num_states, rank, prior
        self.generator = generator
        self.log_density: Callable[[Position], Any] = jax.jit(density.log_density(data, prior))
        initial = jnp.full((num_states,), -np.log(num_states))
        derivatives = jax.grad(hidden_markov.log_likelihood, argnums=(0, 1))

        def expectation(theta: NetworkParameters) -> Any:
            return derivatives(density.log_emission(theta, data), jnp.log(theta.transition), initial)

        self.expectation = jax.jit(expectation)

    def climb(self, clusters: np.ndarray) -> NetworkMode:
        probabilities = np.eye(self.num_states)[clusters]
        moves = np.zeros((self.num_states, self.num_states))
        np.add.at(moves, (clusters[:-1], clusters[1:]), 1.0)
        states: list[Factors | None] = [None] * self.num_states
        dispersions = [0.0 if self.data.levels is None else 1.0] * self.num_states
        reached = -np.inf
        for _ in range(_MOST_ROUNDS):
            for k in range(self.num_states):
                states[k], dispersions[k] = self._fit(probabilities[:, k], states[k], dispersions[k])
            concentration = moves + self.prior.transition_concentration
            together = Factors(*map(np.concatenate, zip(*(s for s in states if s is not None), strict=True)))
            transition = concentration / concentration.sum(axis=1, keepdims=True)
            theta = NetworkParameters(*together, transition, np.asarray(dispersions))
            value = float(self.log_density(_position(theta, self.data, self.prior)))
            probabilities, moves = (np.asarray(d) for d in self.expectation(jax.tree.map(jnp.asarray, theta)))
            if value < reached + _CLOSE:
                break
            reached = value
        diagonal = bool((self.data.pairs[0] == self.data.pairs[1]).any())
        order = state_order(theta, diagonal=diagonal)
        ordered = identified(jax.tree.map(lambda leaf: leaf[None], theta), diagonal=diagonal)
        first = jax.tree.map(lambda leaf: leaf[0], ordered)
        return NetworkMode(value, first, probabilities[:, order], moves[np.ix_(order, order)])

    def _fit(self, weights: np.ndarray, before: Factors | None, dispersion: float) -> tuple[Factors, float]:
        problem = _problem(self.data, self.prior, weights, dispersion)
        size = self.data.num_classes
        noises = np.asarray(_NOISES if before is None else _NOISES[:2])
        matrices = noises[:, None, None] * self.generator.standard_normal((len(noises), size, size))
        candidates = low_rank_counts.starts(problem, self.rank, matrices)
        if before is not None:
            candidates = Factors(*(np.concatenate(pair) for pair in zip(before, candidates, strict=True)))
        found, values = low_rank_counts.fit(problem, candidates)
        best = Factors(*(leaf[[values.argmax()]] for leaf in found))
        if self.data.levels is not None:
            dispersion = self._best_dispersion(problem, best, weights)
        return best, dispersion

    def _best_dispersion(self, problem: WeightedCounts, factors: Factors, weights: np.ndarray) -> float:
        levels, tally = self.data.levels, self.data.tally
        assert levels is not None
        assert tally is not None
        tallied = weights @ tally
        steps = np.arange(int(levels.max()))

        def loss(log: float) -> float:
            at = problem._replace(dispersion=float(np.exp(log)))
            rising = np.append(0.0, np.cumsum(np.log1p(at.dispersion * steps)))[levels]
            prior = 0.5 * (log / self.prior.dispersion_scale) ** 2
            return prior - float(low_rank_counts.objective(at, factors)[0] + tallied @ rising)

        low, high = np.log(_DISPERSIONS)
        found: Any = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-4})
        return float(np.exp(found.x))


def _partitions(
    data: NetworkCounts, num_states: int, num_starts: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """Clusterings by log counts, their roots and fractions, most of them with some windows reassigned."""
    observed = data.is_observed.sum(axis=0)
    mean = data.values.sum(axis=0) / np.maximum(observed, 1)
    values = np.where(data.is_observed, data.values, mean)
    shares = np.log((values + 0.5) / (values + 0.5).sum(axis=1, keepdims=True))
    views = (np.log1p(values), np.sqrt(values), np.concatenate([shares, np.log1p(values.sum(axis=1))[:, None]], axis=1))
    found: dict[bytes, np.ndarray] = {}
    for i in range(num_starts):
        with warnings.catch_warnings():
            # fewer distinct windows than states
            warnings.simplefilter("ignore", ConvergenceWarning)
            seed = int(generator.integers(2**31))
            clusters = KMeans(num_states, n_init="auto", random_state=seed).fit_predict(views[i % len(views)])
        if i >= len(views):
            is_moved = generator.random(len(clusters)) < generator.uniform(0.0, _MOST_MOVED)
            clusters = np.where(is_moved, clusters[generator.permutation(len(clusters))], clusters)
        # number states in the order of their first windows
        present, first = np.unique(clusters, return_index=True)
        names = np.zeros(num_states, int)
        names[present] = np.argsort(np.argsort(first))
        clusters = names[clusters]
        found.setdefault(clusters.tobytes(), clusters)
    return list(found.values())


def _problem(data: NetworkCounts, prior: NetworkPrior, weights: np.ndarray, dispersion: float) -> WeightedCounts:
    return WeightedCounts(
        weights @ data.values,
        weights @ data.is_observed,
        data.pairs,
        data.num_classes,
        dispersion,
        prior.eigenvalue_scale * data.num_classes,
        prior.intercept_scale,
    )


def _position(theta: NetworkParameters, data: NetworkCounts, prior: NetworkPrior) -> Position:
    logs = np.log(theta.transition)
    position: dict[str, Any] = {
        "vectors": tuple(np.asarray(vectors) for vectors in theta.vectors),
        "eigenvalues": np.asarray(theta.eigenvalues),
        "log_ratios": logs[:, :-1] - logs[:, -1:],
    }
    if prior.intercept_scale is not None:
        position["intercept"] = np.asarray(theta.intercept)
    if data.levels is not None:
        position["log_dispersion"] = np.log(theta.dispersion)
    return position


def _near(problem: WeightedCounts, at: Factors, spread: float, generator: np.random.Generator) -> Factors:
    """Draw from the normal distribution with the Fisher information as precision, in its informative directions."""
    rank = at.eigenvalues.shape[1]
    values, directions = np.linalg.eigh(low_rank_counts.information(problem, at)[1][0])
    num_flat = rank * (rank + 1) // 2
    scales = 1.0 / np.sqrt(np.maximum(values[num_flat:], 1e-9))
    step = (directions[:, num_flat:] @ (scales * generator.standard_normal(len(scales))))[None]
    # for poorly determined states the normal approximation fails and distant rates explode
    lowest = low_rank_counts.objective(problem, at) - spread**2 * len(scales)
    factor = spread
    while factor > 1e-6:
        point = low_rank_counts.moved(problem, at, factor * step)
        if low_rank_counts.objective(problem, point) >= lowest:
            return point
        factor /= 2
    return at


def _is_same(one: NetworkMode, other: NetworkMode) -> bool:
    is_level = abs(one.log_density - other.log_density) < _SAME
    return is_level and bool((one.probabilities.argmax(axis=1) == other.probabilities.argmax(axis=1)).all())
