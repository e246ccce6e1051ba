"""Hierarchical canonical correlation analysis of grouped data with two views, as a scikit-learn estimator."""

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from geodax._wording import argument
from geodax.models.cca import density, inputs
from geodax.models.cca import pooling as cca_pooling
from geodax.models.cca.density import CCAParameters
from geodax.models.cca.inputs import Columns, Rows, Views, group_labels
from geodax.models.cca.options import CCAOptions
from geodax.models.cca.pooling import CCAPrior
from geodax.models.cca.signs import Frames, with_identified
from geodax.models.missing import fill_missing
from geodax.models.options import require_count, require_positive, sampled, seed_of
from geodax.models.pooling import MOST_PREDICTIVE_DRAWS, log_mean, over_rows, pooled, with_log_likelihood
from geodax.models.principal_axes import num_directions
from geodax.models.run_arguments import AllowsMissing, RunArguments, all_or_nothing

_OWNER = "HierarchicalCCA"
_LEAST_ROWS = 3  # of a group
_LEAST_COLUMNS = 4  # of both views


@dataclasses.dataclass(eq=False, repr=False)
class HierarchicalCCA(AllowsMissing, RunArguments, CCAOptions, TransformerMixin, BaseEstimator):
    r"""CCA of groups with similar orthonormal matrices (Pourzanjani et al. 2021, section 6.3).

    In group g, view v is :math:`\mu_{gv} + W_{gv} \Lambda_{gv} z + B_{gv} \Delta_{gv} u_v` plus noise, where z is
    shared by both views. W and B are orthonormal. Their Givens angles, in a chart around a reference, are normal around
    common angles with a learned spread; alternatively they are independent, or equal in all groups. Means, scales and
    noise are always specific to the group. See :mod:`geodax.models.cca.density` and :mod:`geodax.models.cca.pooling`.

    ``X`` is a pair ``[X1, X2]`` of matrices with the same rows or, with ``views``, one matrix or data frame.
    ``groups`` has one label per row, or is the name of a column of the data frame. Without a hierarchy it may be None,
    if all rows are one group. Missing cells (NaN) are integrated out.

    Args:
        views: For one matrix: a pair of lists of columns, by name or by position.
        reference: Centres of the charts, as :class:`geodax.models.cca.signs.Frames`; None estimates them from the data.

    Attributes:
        posterior_: ``xarray.DataTree`` in ArviZ's layout with the fields of
            :class:`geodax.models.cca.density.CCAParameters`, signs and order aligned, in standardised units;
            hierarchical fits also have ``common_*`` and ``spread_*`` for each of the matrices.
        groups_: The labels, sorted.
        n_features_in_: Number of columns of X, or of both views.
        reference_: The reference matrices.
        center_, spread_: Constants subtracted from each column (both views side by side), and the divisors.
        view_names_: Names of the columns of both views.

    Example:
        >>> model = HierarchicalCCA(random_state=0).fit([X1, X2], groups=labels)  # doctest: +SKIP
    """

    _: dataclasses.KW_ONLY
    views: tuple[Columns, Columns] | None = None
    reference: Frames | None = None

    @all_or_nothing
    def fit(self, X: Any, groups: Any = None) -> "HierarchicalCCA":
        """Sample the posterior.

        Args:
            X: Both views, NaN where a cell is missing.
            groups: The group of each row; every group needs at least three rows.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: If data or options are invalid.
        """
        data, filled, estimate = self.prepare(X, groups)
        self._require_noise(filled)
        pooling = cca_pooling.checked_pooling(_OWNER, self.pooling)
        prior = CCAPrior(self.mean_prior_scale, self.scale_prior_scale, self.noise_prior_scale, self.spread_prior_scale)
        seed = seed_of(self)
        with jax.enable_x64(True):
            shape = cca_pooling.layout(len(self.groups_), self.reference_)
        posterior = sampled(
            self,
            seed,
            cca_pooling.log_density(data, shape, prior),
            lambda key: cca_pooling.starting_point(key, filled, estimate, pooling),
            manifold=cca_pooling.manifold(pooling),
            keep=lambda position: cca_pooling.kept(position, shape),
        )
        self.posterior_ = with_identified(posterior, self.reference_)
        return self

    def with_posterior(self, X: Any, groups: Any = None, *, posterior: Any) -> "HierarchicalCCA":
        """Set the fitted state from the data and the draws of a fit, for instance those of a run folder."""
        self.prepare(X, groups)
        self.posterior_ = with_identified(posterior, self.reference_)
        return self

    def fit_transform(self, X: Any, groups: Any = None) -> Float[np.ndarray, "m r"]:
        """Fit the model, and return the latent variables of the same rows as :meth:`transform`."""
        return self.fit(X, groups).transform(X, groups)

    def transform(self, X: Any, groups: Any = None) -> Float[np.ndarray, "m r"]:
        """Compute posterior mean latent variables of each row.

        Args:
            X: Both views.
            groups: The group of each row.

        Returns:
            The shared variables first, then those of view 1, then those of view 2; each has prior variance 1.
        """
        return over_rows(density.latent_mean, self.draws(), *self._both(X, groups).each).mean(axis=0)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Name the columns of :meth:`transform`: ``shared0``, ..., ``view_1_0``, ..., ``view_2_0``, ..."""
        check_is_fitted(self, "posterior_")
        sizes = {"shared": self.reference_.shared_1, "view_1_": self.reference_.own_1, "view_2_": self.reference_.own_2}
        return np.array([f"{name}{i}" for name, frame in sizes.items() for i in range(frame.shape[-1])], dtype=object)

    def predict(self, X: Any, groups: Any = None, *, view: int = 2) -> Float[np.ndarray, "m n"]:
        """Compute expected values of one view given the other, averaged over the draws.

        Args:
            X: The other view.
            groups: The group of each row.
            view: The view to predict, 1 or 2.

        Returns:
            The predicted rows, in the units of the data.
        """
        rows = self._other_view(X, groups, view)
        means = over_rows(density.conditional_mean, self.draws(), *rows.each).mean(axis=0)
        return (self.center_ + self.spread_ * means)[:, ~rows.given]

    def sample_view(
        self, X: Any, groups: Any = None, *, view: int = 2, random_state: int = 0
    ) -> Float[np.ndarray, "draw m n"]:
        """Draw one view given the other, including noise, for intervals.

        Args:
            X: The other view.
            groups: The group of each row.
            view: The view to draw, 1 or 2.
            random_state: Seed of the draws.

        Returns:
            One set of rows for each posterior draw used, in the units of the data.
        """
        rows = self._other_view(X, groups, view)
        return self._drawn(random_state, rows)[..., ~rows.given]

    def sample(
        self, groups: Any = None, *, random_state: int = 0
    ) -> tuple[Float[np.ndarray, "draw m n1"], Float[np.ndarray, "draw m n2"]]:
        """Draw rows from the posterior predictive distribution.

        Args:
            groups: The group of each row to draw; None uses those of the fit.
            random_state: Seed of the draws.

        Returns:
            View 1 and view 2, one set of rows for each posterior draw used, in the units of the data.
        """
        check_is_fitted(self)
        rows = self.units_.rows(_OWNER, {}, self.row_groups_ if groups is None else np.asarray(groups))
        both = self._drawn(random_state, rows)
        n_1 = len(self.view_names_[0])
        return both[..., :n_1], both[..., n_1:]

    def score_samples(self, X: Any, groups: Any = None) -> Float[np.ndarray, " m"]:
        """Compute the log posterior predictive density of the observed cells of each row.

        Args:
            X: Both views.
            groups: The group of each row.

        Returns:
            Log densities in the units of the data.
        """
        return log_mean(self._log_densities(self._both(X, groups), self.draws()))

    def score(self, X: Any, groups: Any = None) -> float:
        """Compute the mean of :meth:`score_samples`."""
        return float(self.score_samples(X, groups).mean())

    def with_log_likelihood(self, X: Any, groups: Any = None) -> Any:
        """Return the draws with the log likelihood of each row, for ``az.loo`` and ``az.compare``.

        Args:
            X: Both views of the fit.
            groups: The group of each row.

        Returns:
            ``posterior_`` with a group ``log_likelihood``, chain x draw x row, in the units of the data; at most 4,000
            draws of all chains.
        """
        rows = self._both(X, groups)
        return with_log_likelihood(self.posterior_, "row", CCAParameters, partial(self._log_densities, rows))

    def draws(self, most: int | None = MOST_PREDICTIVE_DRAWS) -> CCAParameters:
        """Return the draws of all chains concatenated, thinned evenly to at most ``most``; None is 4,000."""
        check_is_fitted(self)
        return CCAParameters(**pooled(self.posterior_, CCAParameters._fields, most))

    def canonical_correlations(self) -> Float[np.ndarray, "draw g q"]:
        """Compute the canonical correlations of the views in each group, the largest first, one set for each draw."""
        with jax.enable_x64(True):
            return np.asarray(density.canonical_correlations(self.draws(None)))

    def prepare(self, X: Any, groups: Any) -> tuple[density.GroupedRows, density.GroupedRows, cca_pooling.Estimate]:
        """Check options and the data of a fit, and store what predictions need.

        Returns:
            Sufficient statistics; those of the rows with missing cells filled, and the estimate near which chains
            start.
        """
        require_positive(self, "mean_prior_scale", "scale_prior_scale", "noise_prior_scale", "spread_prior_scale")
        is_hierarchical = cca_pooling.checked_pooling(_OWNER, self.pooling) == "hierarchical"
        views = self._views(X, reset=True)
        n_1, n_2 = views.first.shape[1], views.second.shape[1]
        if min(n_1, n_2) < 2:
            raise ValueError(f"{_OWNER}: each view needs at least two columns, found {n_1} and {n_2}.")
        for name, columns in {"n_shared": min(n_1, n_2), "n_view_1": n_1, "n_view_2": n_2}.items():
            require_count(self, name, columns - 1, "the columns of the view less one")
        labels = group_labels(_OWNER, X, groups, len(views.first), () if is_hierarchical else ("all",))
        units = inputs.units_within(_OWNER, views, labels, standardize=self.standardize)
        if is_hierarchical and len(units.groups) < 2:
            raise ValueError(
                f"{_OWNER}: a hierarchy needs at least two groups, found one; use {argument('pooling', 'separate')}."
            )
        self.units_, self.row_groups_ = units, labels
        self.center_, self.spread_, self.groups_, self.view_names_ = units
        rows = units.rows(_OWNER, {1: views.first, 2: views.second}, labels)
        filled = density.grouped_rows(fill_missing(rows.with_missing()), rows.places)
        sizes = (self.n_shared, self.n_view_1, self.n_view_2)
        estimate = cca_pooling.pooled_estimate(filled, n_1, sizes, self.reference)
        self.reference_ = estimate.frames
        return density.grouped_rows(rows.with_missing(), rows.places), filled, estimate

    def _require_noise(self, data: density.GroupedRows) -> None:
        """Refuse loadings that describe a view of a group exactly: then the posterior of its noise is not proper."""
        n_1 = len(self.view_names_[0])
        for v, (view, k) in enumerate(((slice(n_1), self.n_view_1), (slice(n_1, None), self.n_view_2)), start=1):
            rank = num_directions(np.linalg.eigvalsh(data.scatter[:, view, view]))
            size, n = self.n_shared + k, data.scatter[:, view, view].shape[-1]
            for g in np.flatnonzero((rank <= size) & (size < n) & (data.num_rows - 1 > size)):
                raise ValueError(
                    f"{_OWNER}: in group {self.groups_[g].item()!r}, view {v} has {n} columns, of which {n - rank[g]} "
                    "are constant or computed from others, such as a sum or percentages that add up to 100. Its "
                    f"{self.n_shared} shared and {k} own loadings describe it exactly, with no noise left to estimate; "
                    "leave such columns out, or use fewer loadings."
                )

    def _drawn(self, random_state: int, rows: Rows) -> Float[np.ndarray, "draw m n"]:
        """Draw all columns given the observed ones, one set of rows for each draw."""
        draws = self.draws()
        with jax.enable_x64(True):
            keys = jax.random.split(jax.random.key(random_state), len(draws.noise_1))
        found = over_rows(lambda item, *given: density.draw_rows(*item, *given), (keys, draws), *rows.each)
        return self.center_ + self.spread_ * found

    def _log_densities(self, rows: Rows, draws: CCAParameters) -> Float[np.ndarray, "draw m"]:
        return over_rows(density.row_log_density, draws, *rows.each) - rows.observed @ np.log(self.spread_)

    def _both(self, X: Any, groups: Any) -> Rows:
        check_is_fitted(self, "posterior_")
        views = self._views(X, reset=False)
        for names, fitted in zip(views.names, self.view_names_, strict=True):
            inputs.require_columns(_OWNER, names, fitted)
        labels = group_labels(_OWNER, X, groups, len(views.first), self.groups_)
        return self.units_.rows(_OWNER, {1: views.first, 2: views.second}, labels)

    def _other_view(self, X: Any, groups: Any, view: int) -> Rows:
        check_is_fitted(self, "posterior_")
        if view not in (1, 2):
            raise ValueError(f"{_OWNER}: view must be 1 or 2, the view to predict, found {view!r}.")
        inputs.require_columns(_OWNER, inputs.names_of(X), self.view_names_[2 - view])
        found = np.asarray(X, dtype=np.float64)
        return self.units_.rows(_OWNER, {3 - view: found}, group_labels(_OWNER, X, groups, len(found), self.groups_))

    def _views(self, X: Any, *, reset: bool) -> Views:
        if reset:
            self._columns = self.views  # of the fit, even if the option changes later
        if self._columns is not None and inputs.is_matrix(X):
            X = validate_data(
                self,
                X,
                reset=reset,
                dtype=None,
                ensure_all_finite=False,
                ensure_min_samples=_LEAST_ROWS if reset else 1,
                ensure_min_features=_LEAST_COLUMNS,
            )
        views = inputs.split_views(_OWNER, X, self._columns)
        if reset:
            self.n_features_in_ = views.both().shape[1] if self._columns is None else np.shape(X)[1]
        return views
