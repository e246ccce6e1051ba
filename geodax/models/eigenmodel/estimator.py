"""The eigenmodel of a symmetric network, as a scikit-learn estimator."""

import dataclasses
import functools
from typing import Any, cast

import jax
import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from geodax import _checks
from geodax._wording import argument, in_python
from geodax.diagnostics.alignment import align_signs, mean_orthonormal
from geodax.geometry.product import Product
from geodax.geometry.stiefel import Stiefel
from geodax.models.eigenmodel import density
from geodax.models.eigenmodel.density import EigenmodelParameters, EigenmodelPrior
from geodax.models.eigenmodel.modes import EigenmodelMode, find_modes, starting_point
from geodax.models.eigenmodel.options import EigenmodelOptions
from geodax.models.options import require_count, require_positive, run_options, sampled, seed_of
from geodax.models.pooling import (
    MOST_PREDICTIVE_DRAWS,
    log_mean,
    over_draws,
    pooled,
    thinned,
    with_log_likelihood,
    with_variables,
)
from geodax.models.run_arguments import AllowsMissing, RunArguments, all_or_nothing


@dataclasses.dataclass(eq=False, repr=False)
class Eigenmodel(AllowsMissing, RunArguments, EigenmodelOptions, BaseEstimator):
    r"""Hoff's (2009) eigenmodel: relations between nodes through a low-rank symmetric matrix.

    For i < j, :math:`Y_{ij}` has the linear predictor :math:`c + (U \Lambda U^T)_{ij}` with U orthonormal. U is sampled
    on the Stiefel manifold by :func:`geodax.nuts`. Signs and order of the columns are not identified: in ``posterior_``
    the eigenvalues are descending in each draw and the signs are aligned to the mean. If the posteriors of two
    eigenvalues overlap, their columns still mix; ``U Lambda U^T`` and predictions are not affected.

    Where the data determine the signs of the eigenvalues, the posterior has a mode for each number of positive ones.
    The fit searches for them, and each chain starts near one of them (:mod:`geodax.models.eigenmodel.modes`).

    Attributes:
        posterior_: ``xarray.DataTree`` in ArviZ's layout with ``vectors`` (n x p), ``eigenvalues`` (p), ``intercept``.
        vectors_: Posterior mean eigenvectors, orthonormal, n x p.
        eigenvalues_: Posterior mean eigenvalues, descending.
        intercept_: Posterior mean intercept.
        modes_: The modes found, highest first (:class:`geodax.models.eigenmodel.modes.EigenmodelMode`).
        n_features_in_: Number of nodes.

    Example:
        >>> model = Eigenmodel(rank=2, random_state=0).fit(adjacency)  # doctest: +SKIP
        >>> probabilities = model.predict()  # doctest: +SKIP
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True
        return tags

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> "Eigenmodel":
        """Sample the posterior.

        Args:
            X: Symmetric adjacency matrix, nodes x nodes, NaN where a pair is missing; the diagonal is ignored.
            y: Ignored.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: If the matrix is not square and symmetric or has values that the link does not allow, or if
                options are invalid.
        """
        data = density.pairs(self.prepare(X))
        link, prior = self._link(), self._prior()
        seed = seed_of(self)
        run_options(self)  # checked before the search
        self.modes_ = find_modes(data, self.rank, link, prior)
        logdensity_fn, manifold = density.log_density(data, link, prior), Product({"vectors": Stiefel()})
        start = functools.partial(starting_point, modes=self.modes_)
        return self._take(sampled(self, seed, logdensity_fn, start, manifold=manifold))

    def find_modes(self, X: Any) -> list[EigenmodelMode]:
        """Search for the modes of the posterior, as :meth:`fit` does before sampling.

        Returns:
            A mode for each number of positive eigenvalues, highest first.
        """
        return find_modes(density.pairs(self.prepare(X)), self.rank, self._link(), self._prior())

    def prepare(self, X: Any) -> Float[np.ndarray, "n n"]:
        """Check options and the network of a fit, and return it in double precision."""
        matrix = _checks.numbers("Eigenmodel", "X", X)
        require_positive(self, "eigenvalue_scale", "intercept_scale")
        link = self._link()
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 3:
            raise ValueError(
                f"Eigenmodel: expected a square adjacency matrix of at least 3 nodes, found shape {matrix.shape}"
                + in_python("; networkx.to_numpy_array(graph, weight=None) makes one of a graph")
                + "."
            )
        require_count(self, "rank", len(matrix) - 1, "the number of nodes less one")
        off = ~np.eye(len(matrix), dtype=bool)
        differs = off & ~np.isclose(matrix, matrix.T, rtol=0, atol=0, equal_nan=True)
        if differs.any():
            i, j = (int(k) for k in np.argwhere(differs)[0])
            raise ValueError(
                f"Eigenmodel: the network must be symmetric, but entry ({i}, {j}) is {matrix[i, j]} and ({j}, {i}) is "
                f"{matrix[j, i]}. For a directed network, first combine the two values of each pair into one."
            )
        values = matrix[off & ~np.isnan(matrix)]
        if not len(values):
            raise ValueError("Eigenmodel: no pair of nodes is observed.")
        is_allowed = (values >= 0) & (values == np.round(values)) & np.isfinite(values)
        if link != "log":
            is_allowed &= values <= 1
        if not is_allowed.all():
            wanted = "counts 0, 1, 2, ..." if link == "log" else f"0 and 1 ({argument('link', 'log')} is for counts)"
            raise ValueError(
                f"Eigenmodel: {argument('link', link)} needs {wanted}, found {values[~is_allowed][0]}. Without the "
                "weights of the edges, "
                + in_python(
                    "np.where(np.isnan(X), X, X != 0) says", "--first-node and --second-node without --value say"
                )
                + " which pairs are linked."
            )
        self.n_features_in_ = len(matrix)
        return matrix

    def with_posterior(self, X: Any, posterior: Any) -> "Eigenmodel":
        """Set the fitted state from the data and the draws of a fit, for instance those of a run folder."""
        self.prepare(X)
        return self._take(posterior)

    def predict(self, X: Any = None) -> np.ndarray:
        """Compute posterior mean probabilities (or rates) of pairs.

        Args:
            X: Pairs of nodes, m x 2 indices from 0; None selects all pairs.

        Returns:
            One value per pair; or the n x n matrix with NaN on its diagonal, since there are no self-loops.

        Raises:
            ValueError: If a row of X is not a pair of two different nodes.
        """
        check_is_fitted(self)
        chosen = None if X is None else self._checked_pairs(X)
        mean = self.predict_draws().mean(axis=0)
        return mean if chosen is None else mean[chosen[:, 0], chosen[:, 1]]

    def predict_draws(self, X: Any = None) -> np.ndarray:
        """Return the values of :meth:`predict` at each posterior draw used, for intervals."""
        check_is_fitted(self)
        chosen = None if X is None else self._checked_pairs(X)
        link = self._link_of_fit
        means = over_draws(lambda theta: density.expected(density.predictor(theta), link), self.draws())
        if chosen is not None:
            return means[:, chosen[:, 0], chosen[:, 1]]
        means = np.array(means)
        means[:, np.arange(self.n_features_in_), np.arange(self.n_features_in_)] = np.nan
        return means

    def score(self, X: Any, y: Any = None) -> float:
        """Compute the mean of :meth:`log_predictive`; y is ignored."""
        return float(self.log_predictive(X).mean())

    def log_predictive(self, X: Any) -> Float[np.ndarray, " pair"]:
        """Compute the log posterior predictive probability of each observed pair.

        Args:
            X: A network of the same nodes, NaN where a pair is excluded.

        Returns:
            One number for each observed pair i < j, row by row.
        """
        check_is_fitted(self)
        return log_mean(self._log_probabilities(density.pairs(self.prepare(X)), self.draws()))

    def with_log_likelihood(self, X: Any) -> Any:
        """Return the draws with the log likelihood of each observed pair, for ``az.loo`` and ``az.compare``.

        Args:
            X: The network of the fit.

        Returns:
            ``posterior_`` with a group ``log_likelihood``, chain x draw x pair, with the pairs i < j row by row; at
            most 4,000 draws of all chains.
        """
        check_is_fitted(self)
        of_draws = functools.partial(self._log_probabilities, density.pairs(self.prepare(X)))
        return with_log_likelihood(self.posterior_, "pair", EigenmodelParameters, of_draws)

    def sample_networks(self, *, random_state: int = 0) -> Float[np.ndarray, "draw n n"]:
        """Draw networks from the posterior predictive distribution.

        Args:
            random_state: Seed of the draws.

        Returns:
            Symmetric networks with zero diagonals, one for each posterior draw used.
        """
        check_is_fitted(self)
        draws, link = self.draws(), self._link_of_fit
        with jax.enable_x64(True):
            keys = jax.random.split(jax.random.key(random_state), len(draws.intercept))
            return over_draws(lambda given: density.draw_network(given[0], given[1], link), (keys, draws))

    def draws(self, most: int | None = MOST_PREDICTIVE_DRAWS) -> EigenmodelParameters:
        """Return the draws of all chains concatenated, thinned evenly to at most ``most``; None is 4,000."""
        check_is_fitted(self)
        return EigenmodelParameters(**pooled(self.posterior_, EigenmodelParameters._fields, most))

    def _take(self, posterior: Any) -> "Eigenmodel":
        tree = thinned(posterior)
        group = tree["posterior"]
        vectors, eigenvalues = density.with_ordered_columns(group["vectors"].values, group["eigenvalues"].values)
        aligned, _ = align_signs(vectors)
        self.posterior_ = with_variables(tree, vectors=aligned, eigenvalues=eigenvalues)
        self._link_of_fit: density.Link = self._link()  # of predictions, even if options change later
        self.vectors_ = mean_orthonormal(aligned.reshape(-1, *aligned.shape[2:]))
        self.eigenvalues_ = eigenvalues.mean(axis=(0, 1))
        self.intercept_ = float(group["intercept"].values.mean())
        return self

    def _log_probabilities(
        self, data: density.NetworkPairs, draws: EigenmodelParameters
    ) -> Float[np.ndarray, "draw pair"]:
        first, second = np.nonzero(data.is_observed)
        link = self._link_of_fit

        def of_draw(theta: EigenmodelParameters, first: Any, second: Any, values: Any) -> Any:
            return density.pair_log_likelihood(density.predictor(theta)[first, second], values, link)

        return over_draws(of_draw, draws, first, second, data.values[first, second])

    def _prior(self) -> EigenmodelPrior:
        return EigenmodelPrior(self.eigenvalue_scale, self.intercept_scale)

    def _link(self) -> density.Link:
        return cast(density.Link, _checks.chosen("Eigenmodel", "link", self.link, density.LINKS))

    def _checked_pairs(self, X: Any) -> np.ndarray:
        chosen = np.asarray(X)
        is_pairs = chosen.ndim == 2 and chosen.shape[1] == 2 and np.issubdtype(chosen.dtype, np.integer)
        if not is_pairs:
            raise ValueError(
                f"Eigenmodel: predict expects pairs of nodes as integers of shape (m, 2), found {chosen.dtype} of "
                f"shape {chosen.shape}."
            )
        wrong = (chosen < 0).any(axis=1) | (chosen >= self.n_features_in_).any(axis=1) | (chosen[:, 0] == chosen[:, 1])
        if wrong.any():
            raise ValueError(
                f"Eigenmodel: predict expects the indices of two different nodes in each row of X, from 0 to "
                f"{self.n_features_in_ - 1}, found {tuple(chosen[wrong][0].tolist())} in row "
                f"{int(np.flatnonzero(wrong)[0])}."
            )
        return chosen
