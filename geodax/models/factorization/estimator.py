"""Low-rank factorisation of user-item ratings as an estimator."""

import dataclasses
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from geodax import _checks
from geodax._normal import Normal
from geodax._wording import argument
from geodax.models.factorization import density
from geodax.models.factorization.least_squares import SpectralStart
from geodax.models.factorization.options import FactorizationOptions
from geodax.models.factorization.predictive import as_pairs, draws_at, names_of_columns, places
from geodax.models.mlp.stochastic import StochasticGradientMCMC, sample_in_stages
from geodax.models.numbers import PredictsNumbers
from geodax.models.options import require_count, require_positive, sampled, seed_of
from geodax.models.run_arguments import RunArguments, all_or_nothing
from geodax.models.unit_network.functions import moments
from geodax.posterior import Posterior
from geodax.predict.mixtures import Mixture
from geodax.predict.numbers import NumberPredictions, numbers_from_means

SAMPLERS = ("sghmc", "nuts")


@dataclasses.dataclass(eq=False, repr=False)
class LowRankFactorization(RunArguments, FactorizationOptions, PredictsNumbers, RegressorMixin, BaseEstimator):
    r"""Low-rank model of ratings of items by users, with user and item offsets, and noise.

    The matrix is :math:`U \mathrm{diag}(s) V^T` with orthonormal U and V, sampled on Stiefel manifolds by
    :func:`geodax.sghmc` (Yanush and Kropotov 2019, section 3.4), or by :func:`geodax.nuts`.
    :mod:`geodax.models.factorization.density` has model and priors. Ratings are standardised internally. Each chain
    starts near the leading singular vectors of the known entries.

    Users and items that were not in the fit are predicted from their priors, which are wide: they contribute nothing to
    the expected ratings, and their interaction is approximated as normal.

    Attributes:
        posterior_: ``xarray.DataTree`` in ArviZ's layout with ``left``, ``right``, ``scales`` (descending),
            ``intercept``, ``user_offset``, ``item_offset``, ``log_noise``, in standardised units. Columns of both
            factors may change sign together.
        users_, items_: Names of the users and items, sorted.
        feature_names_in_: Names of the two columns, if X was a data frame with names.
        center_, spread_: Constant subtracted from the ratings, and the divisor.

    Example:
        >>> model = LowRankFactorization(rank=10, random_state=0).fit(pairs, ratings)  # doctest: +SKIP
        >>> mean, deviation = model.predict(new_pairs, return_std=True)  # doctest: +SKIP
    """

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> "LowRankFactorization":
        """Sample the posterior.

        Args:
            X: A user and an item per row: an array, a data frame, or a list of rows. Columns hold strings or numbers,
                none missing; later pairs must have the same types, and later data frames the same columns.
            y: Rating of each row.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: If the data have the wrong form, or options are invalid.
        """
        form, data = self.prepare(X, y)
        users, items, ratings = data
        posterior = Posterior(
            log_prior=partial(density.log_prior, form=form),
            log_likelihood=partial(density.log_likelihood, form=form),
            num_data=len(ratings),
        )
        start, manifold = SpectralStart(users, items, ratings, form), density.geometry(form)
        if self.sampler == "nuts":
            self.posterior_ = sampled(
                self,
                seed_of(self),
                lambda position: posterior.logdensity(position, jax.tree.map(jnp.asarray, data)),
                start,
                manifold=manifold,
                keep=partial(density.parameters, form=form),
                thinning=self.thinning,
            )
            return self
        self.posterior_ = sample_in_stages(
            jax.random.key(seed_of(self)),
            self._settings(),
            posterior,
            data,
            start,
            manifold=manifold,
            folder=None if self.checkpoint is None else Path(self.checkpoint),
            devices=self.devices,
            progress=self.progress,
            trains=False,  # the initial position is close enough
            keep=partial(density.parameters, form=form),
        )
        return self

    def prepare(self, X: Any, y: Any) -> tuple[density.FactorizationForm, tuple[np.ndarray, ...]]:
        """Check options and the data of a fit, and learn names and the standardisation.

        Returns:
            The model's form, and indices of users and items with standardised ratings.
        """
        pairs, names, ratings = as_pairs(X), names_of_columns(X), _checks.numbers("LowRankFactorization", "y", y)
        ratings = ratings[:, 0] if ratings.shape[1:] == (1,) else ratings  # a frame of one column
        if ratings.shape != (len(pairs[0]),) or not np.isfinite(ratings).all():
            raise ValueError(
                f"LowRankFactorization: expected {len(pairs[0])} finite ratings, one for each pair, found an array of "
                f"shape {ratings.shape} with {int(np.sum(~np.isfinite(ratings)))} non-finite values."
            )
        center, spread = moments(ratings)
        if np.ptp(ratings) <= 1e-12 * max(abs(center), 1e-300):
            raise ValueError("LowRankFactorization: all ratings are equal; expected at least two different values.")
        self.center_, self.spread_ = float(center), float(spread)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):  # from an earlier fit
            del self.feature_names_in_
        (self.users_, users), (self.items_, items) = (np.unique(side, return_inverse=True) for side in pairs)
        smaller = min(len(self.users_), len(self.items_))
        why = f"the fewer of {len(self.users_)} users and {len(self.items_)} items"
        require_count(self, "rank", smaller, why)
        _checks.chosen("LowRankFactorization", "factorization", self.factorization, tuple(density.FACTORIZATIONS))
        require_positive(self, "interaction_scale", "offset_scale")
        target = self.target_acceptance_rate
        _checks.number("LowRankFactorization", "target_acceptance_rate", target, above=0.0, below=1.0)
        self._settings().check_numbers()
        _checks.chosen("LowRankFactorization", "sampler", self.sampler, SAMPLERS)
        if self.sampler == "nuts" and (self.temperature != 1.0 or self.step_size is not None):
            wrong = "temperature" if self.temperature != 1.0 else "step_size"
            raise ValueError(
                f"LowRankFactorization: {argument(wrong, getattr(self, wrong))} is for {argument('sampler', 'sghmc')}; "
                f"{argument('sampler', 'nuts')} samples the posterior itself, with a step size that its warm-up finds."
            )
        self._form = density.make_form(
            users,
            items,
            rank=int(self.rank),
            factorization=self.factorization,
            has_offsets=bool(self.offsets),
            interaction_scale=float(self.interaction_scale),
            offset_scale=float(self.offset_scale),
        )
        standardised = ((ratings - center) / spread).astype(np.float64 if self.sampler == "nuts" else np.float32)
        return self._form, (users.astype(np.int32), items.astype(np.int32), standardised)

    def with_posterior(self, X: Any, y: Any, posterior: Any) -> "LowRankFactorization":
        """Set the fitted state from the data and the draws of a fit, for instance those of a run folder."""
        self.prepare(X, y)
        self.posterior_ = posterior
        return self

    def predict_parts(self, X: Any, y: Any = None) -> NumberPredictions:
        blocks = list(self._draws_at(X))
        mixed = numbers_from_means(
            ((mean[None], np.sqrt(noise + extra)[None]) for mean, extra, noise in blocks),
            targets=None if y is None else _checks.numbers("LowRankFactorization", "y", y),
        )
        noise = np.full(len(mixed.mean), np.mean([noise for *_, noise in blocks]))
        return mixed._replace(aleatoric=noise, epistemic=mixed.variance - noise)

    def predict_draws(self, X: Any) -> Float[np.ndarray, "draw rows"]:
        return np.stack([mean for mean, _, _ in self._draws_at(X)])

    def _mixture(self, X: Any) -> Mixture:
        means, variances = zip(*((mean, extra + noise) for mean, extra, noise in self._draws_at(X)), strict=True)
        return Mixture(Normal, (np.stack(means), np.sqrt(np.stack(variances))))

    def is_known(self, X: Any) -> np.ndarray:
        """Return whether the user and the item of each row were in the fit, rows x 2."""
        return np.stack([places >= 0 for places in self._places(X)], axis=1)

    def _settings(self) -> StochasticGradientMCMC:
        options = self.get_params(deep=False) | {"sampler": "sghmc"}
        return cast(StochasticGradientMCMC, StochasticGradientMCMC.from_settings(options))

    def _places(self, X: Any) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
        check_is_fitted(self, "users_")
        pairs, names = as_pairs(X), names_of_columns(X)
        if names is not None and list(names) != list(getattr(self, "feature_names_in_", names)):
            user, item = self.feature_names_in_
            raise ValueError(
                f"LowRankFactorization: the columns of the fit are {user!r} for users and {item!r} for items, found "
                f"{names[0]!r} and {names[1]!r}; pass X[[{user!r}, {item!r}]], or an array without names."
            )
        return places(pairs, self.users_, self.items_)

    def _draws_at(self, X: Any) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
        """Yield, for each draw, the rows' means, the variance of their unknown parts, and the noise variance."""
        check_is_fitted(self, "posterior_")
        user, item = self._places(X)
        form = self._form  # as fitted, even if options change later
        for mean, extra, noise in draws_at(self.posterior_, user, item, form.offset_scale, form.entry_variance):
            yield self.center_ + self.spread_ * mean, self.spread_**2 * extra, self.spread_**2 * noise
