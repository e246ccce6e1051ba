"""The hidden Markov network model, as a scikit-learn estimator."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from geodax.geometry.product import Product
from geodax.geometry.stiefel import Stiefel
from geodax.models.network import density
from geodax.models.network.counts import NetworkCounts, checked_counts, checked_likelihood, observations
from geodax.models.network.density import NetworkParameters, NetworkPrior
from geodax.models.network.modes import NetworkMode, find_modes, starting_point
from geodax.models.network.options import NetworkOptions
from geodax.models.network.order import identified
from geodax.models.options import require_count, require_positive, run_options, sampled, seed_of
from geodax.models.pooling import MOST_PREDICTIVE_DRAWS, log_mean, over_draws, pooled, thinned, with_variables
from geodax.models.run_arguments import RunArguments, all_or_nothing

_MOST_STARTS = 10_000


@dataclasses.dataclass(eq=False, repr=False)
class NetworkHMM(RunArguments, NetworkOptions, BaseEstimator):
    r"""Counts between classes over time, modelled by a hidden Markov chain of low-rank rate matrices.

    In state k, counts between classes i <= j are Poisson with rate :math:`\exp((W_k \Lambda_k W_k^T)_{ij})`, with the
    exponential taken entry by entry and W_k orthonormal (Pourzanjani et al. 2021, section 6.4), or negative binomial
    with these means. The density sums over the states; the W_k are sampled on the Stiefel manifold by
    :func:`geodax.nuts`. In ``posterior_`` states are matched across draws by their rates and numbered by mean total
    rate in ascending order (:mod:`geodax.models.network.order`).

    With many counts the posterior has modes between which chains do not move. The fit first searches for modes from
    ``num_starts`` partitions of the windows, and starts all chains near the highest
    (:mod:`geodax.models.network.modes`). Check ``modes_`` for the gap to the other modes; R-hat does not show it.

    Attributes:
        posterior_: ``xarray.DataTree`` in ArviZ's layout with ``vectors`` (K x C x p), ``eigenvalues`` (K x p),
            ``intercept`` (K), ``transition`` (K x K), ``dispersion`` (K).
        rates_: Posterior mean rates, K x C x C.
        transition_: Posterior mean transition matrix.
        state_probabilities_: Posterior probabilities of the states in the windows of the fit, T x K.
        modes_: The modes found, highest first (:class:`geodax.models.network.modes.NetworkMode`); the chains started
            near the first.
        n_features_in_: Number of classes.

    Example:
        >>> model = NetworkHMM(n_states=3, rank=2, random_state=0).fit(counts)  # doctest: +SKIP
        >>> states = model.predict(counts)  # doctest: +SKIP
    """

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> "NetworkHMM":
        """Sample the posterior.

        Args:
            X: Symmetric counts, windows x classes x classes, NaN where a count is missing.
            y: Ignored.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: If the counts are not symmetric integers, or options are invalid.
        """
        counts = self.prepare(X)
        data, prior, seed = self._data(counts), self._prior(), seed_of(self)
        run_options(self)  # checked before the search
        self.modes_ = self._search(data, seed)
        posterior = sampled(
            self,
            seed,
            density.log_density(data, prior),
            lambda key: starting_point(key, self.modes_[0], data, prior),
            manifold=Product({"vectors": (Stiefel(),) * self.n_states}),
            keep=lambda position: density.parameters(position)._asdict(),
        )
        return self._take(counts, posterior)

    def find_modes(self, X: Any) -> list[NetworkMode]:
        """Search for the modes of the posterior, highest first, as :meth:`fit` does before sampling."""
        return self._search(self._data(self.prepare(X)), seed_of(self))

    def prepare(self, X: Any) -> Float[np.ndarray, "T C C"]:
        """Check options and the counts of a fit, and return these in double precision."""
        checked_likelihood(self.counts)
        require_positive(self, "eigenvalue_scale", "intercept_scale", "transition_concentration", "dispersion_scale")
        counts = checked_counts(X)
        num_windows, num_classes = counts.shape[:2]
        require_count(self, "n_states", num_windows, "the number of windows")
        require_count(self, "rank", num_classes - 1, "the number of classes less one")
        require_count(self, "num_starts", _MOST_STARTS, "a search of hours")
        self.n_features_in_ = num_classes
        return counts

    def with_posterior(self, X: Any, posterior: Any) -> "NetworkHMM":
        """Set the fitted state from the data and the draws of a fit, for instance those of a run folder."""
        return self._take(self.prepare(X), posterior)

    def predict_proba(self, X: Any) -> Float[np.ndarray, "T K"]:
        """Compute posterior probabilities of the states in consecutive windows, averaged over the draws."""
        data = self._observed(X)
        return over_draws(lambda theta: density.state_probabilities(theta, data), self.draws()).mean(axis=0)

    def predict(self, X: Any) -> Int[np.ndarray, " T"]:
        """Return the most probable state of each window, counted from 0; state 0 has the lowest total rate."""
        return self.predict_proba(X).argmax(axis=1)

    def score(self, X: Any, y: Any = None) -> float:
        """Compute the log posterior predictive probability of consecutive windows, divided by their number.

        Args:
            X: Counts, windows x classes x classes.
            y: Ignored.

        Returns:
            The mean log probability per window.
        """
        data = self._observed(X)
        values = over_draws(lambda theta: density.sequence_log_likelihood(theta, data), self.draws())
        return float(log_mean(values) / len(data.values))

    def log_predictive(self, X: Any, given: Any) -> Float[np.ndarray, " N"]:
        """Compute the log posterior predictive probability of single counts, each given the counts of the fit.

        Args:
            X: Counts, windows x classes x classes, NaN where a count is excluded.
            given: Other counts in the same windows, NaN where missing, from which the states are inferred.

        Returns:
            One number for each observed count of X with i <= j (i < j without the diagonal), window by window.

        Raises:
            ValueError: If X and ``given`` have different windows.
        """
        asked, known, likelihood = self._observed(X), self._observed(given), self._form["likelihood"]
        if len(asked.values) != len(known.values):
            raise ValueError(
                f"NetworkHMM: X and given must have the same windows, found {len(asked.values)} and "
                f"{len(known.values)}."
            )
        window, place = np.nonzero(asked.is_observed)
        values = asked.values[window, place].astype(np.int64)
        pairs = asked.pairs[0][place], asked.pairs[1][place]

        def log_probabilities(theta: NetworkParameters) -> Any:
            in_state = density.count_log_probabilities(theta, values, pairs, likelihood=likelihood)
            return logsumexp(in_state, axis=0, b=density.state_probabilities(theta, known)[window].T)

        return log_mean(over_draws(log_probabilities, self.draws()))

    def expected_counts(self, X: Any) -> Float[np.ndarray, "T C C"]:
        """Compute rates of consecutive windows, averaged over states and draws, such as for missing counts."""
        data = self._observed(X)

        def rates(theta: NetworkParameters) -> Any:
            return jnp.einsum(
                "tk,kij->tij", density.state_probabilities(theta, data), jnp.exp(density.log_rates(theta))
            )

        return over_draws(rates, self.draws()).mean(axis=0)

    def sample_states(self, X: Any, *, random_state: int = 0) -> Int[np.ndarray, "draw T"]:
        """Draw sequences of states given the windows (forward filtering, backward sampling).

        Args:
            X: Counts, windows x classes x classes.
            random_state: Seed of the draws.

        Returns:
            One sequence for each posterior draw used.
        """
        data = self._observed(X)
        keys, draws = self._keyed(random_state)
        return over_draws(lambda given: density.draw_states(given[0], given[1], data), (keys, draws))

    def sample_counts(self, X: Any, *, random_state: int = 0) -> Float[np.ndarray, "draw T C C"]:
        """Draw replicates of the windows: states given the windows, then counts given the states.

        Args:
            X: Counts, windows x classes x classes.
            random_state: Seed of the draws.

        Returns:
            Symmetric counts, one set for each posterior draw used.
        """
        states, generator = self.sample_states(X, random_state=random_state), np.random.default_rng(random_state)
        is_poisson = self._form["likelihood"] == "poisson"
        dispersions = [None] * len(states) if is_poisson else self.draws().dispersion
        given = zip(self.rates(), states, dispersions, strict=True)
        return np.stack([density.draw_counts(generator, *each) for each in given])

    def draws(self, most: int | None = MOST_PREDICTIVE_DRAWS) -> NetworkParameters:
        """Return the draws of all chains concatenated, thinned evenly to at most ``most``; None is 4,000."""
        check_is_fitted(self)
        return NetworkParameters(**pooled(self.posterior_, NetworkParameters._fields, most))

    def rates(self, most: int | None = MOST_PREDICTIVE_DRAWS) -> Float[np.ndarray, "draw K C C"]:
        """Return draws of the rate matrices, thinned evenly to at most ``most``; None is 4,000."""
        return np.exp(over_draws(density.log_rates, self.draws(most)))

    def _take(self, counts: np.ndarray, posterior: Any) -> "NetworkHMM":
        self._form = self._own_form()  # of predictions, even if options change later
        tree = thinned(posterior)
        raw = NetworkParameters(*(tree["posterior"][name].values for name in NetworkParameters._fields))
        ordered = identified(raw, diagonal=self.diagonal)._asdict()
        self.posterior_ = with_variables(tree, **ordered)
        self.rates_ = self.rates().mean(axis=0)
        self.transition_ = ordered["transition"].mean(axis=(0, 1))
        self.state_probabilities_ = self.predict_proba(counts)
        return self

    def _observed(self, X: Any) -> NetworkCounts:
        check_is_fitted(self, "posterior_")
        counts = checked_counts(X)
        if counts.shape[1] != self.n_features_in_:
            raise ValueError(
                f"NetworkHMM: the model was fitted to {self.n_features_in_} classes, found {counts.shape[1]}."
            )
        return observations(counts, **self._form)

    def _data(self, counts: np.ndarray) -> NetworkCounts:
        return observations(counts, **self._own_form())

    def _own_form(self) -> Any:
        return {"diagonal": self.diagonal, "likelihood": checked_likelihood(self.counts)}

    def _prior(self) -> NetworkPrior:
        intercept = self.intercept_scale if self.intercept else None
        return NetworkPrior(self.eigenvalue_scale, intercept, self.transition_concentration, self.dispersion_scale)

    def _search(self, data: NetworkCounts, seed: int) -> list[NetworkMode]:
        return find_modes(data, self.n_states, self.rank, self._prior(), num_starts=self.num_starts, seed=seed)

    def _keyed(self, random_state: int) -> tuple[Any, NetworkParameters]:
        draws = self.draws()
        with jax.enable_x64(True):
            return jax.random.split(jax.random.key(random_state), len(draws.transition)), draws
