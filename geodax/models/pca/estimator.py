"""Bayesian principal component analysis, as a scikit-learn estimator."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from geodax import _checks
from geodax._normal import Normal
from geodax._wording import argument, in_python
from geodax.diagnostics.alignment import align_signs, mean_orthonormal
from geodax.geometry.product import Product
from geodax.geometry.stiefel import Stiefel
from geodax.models import pooling
from geodax.models.missing import require_values
from geodax.models.options import require_positive, sampled, seed_of
from geodax.models.pca import density as ppca
from geodax.models.pca import reduced as ppca_reduced
from geodax.models.pca.density import PPCAParameters, PPCAPrior
from geodax.models.pca.held_out import HeldOutCells, held_out_cells, number_of
from geodax.models.pca.options import PCAOptions
from geodax.models.run_arguments import AllowsMissing, RunArguments, all_or_nothing
from geodax.models.unit_network.functions import units
from geodax.models.validation import validated
from geodax.predict.mixtures import Mixture, as_levels
from geodax.run.blocks import draw_blocks, mapped

_MOST_ENTRIES = 1 << 24  # of the arrays in a prediction for a block of rows


@dataclasses.dataclass(eq=False, repr=False)
class BayesianPCA(
    AllowsMissing, RunArguments, PCAOptions, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    r"""Probabilistic PCA with a posterior over orthonormal loadings, scales, noise and mean.

    Rows are :math:`N(\mu, W \Lambda^2 W^T + \sigma^2 I)` with :math:`W^T W = I` and :math:`\Lambda` diagonal,
    positive and ordered (Pourzanjani et al., section 6.2). W is sampled on the Stiefel manifold by
    :func:`geodax.nuts`. Only the signs of its columns are unidentified; they are aligned afterwards.
    Missing cells (NaN) are allowed in all methods and are marginalised. With ``noise="diagonal"`` each column has its
    own noise, as in factor analysis.

    Attributes:
        posterior_: ``xarray.DataTree`` in ArviZ's layout, with ``components`` (n x p, signs aligned), ``scale``
            (p), ``noise`` (one number, or n) and ``mean`` (n) in standardised units.
        n_components_: Number of components.
        held_out_: Predictions of held-out cells with each number of components (their ``predicted`` fraction of
            variance, its ``standard_error``, the ``chosen`` number) after a fit with ``n_components="auto"``, or None.
        components_: Posterior mean loadings, orthonormal, p x n as in scikit-learn.
        explained_variance_: Posterior mean variance along each component, noise included, in standardised units.
        explained_variance_ratio_: Posterior mean fraction of the total variance of each component, without the
            noise.
        noise_variance_: Posterior mean noise variance, in standardised units; one for each column with
            ``noise="diagonal"``.
        mean_: Posterior mean of the mean, in the data's units.
        center_, spread_: What was subtracted from each column and what it was divided by.
        n_features_in_, feature_names_in_: As in scikit-learn.

    Example:
        >>> model = BayesianPCA(n_components=2, random_state=0).fit(X)  # doctest: +SKIP
        >>> scores = model.transform(X)  # doctest: +SKIP
    """

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> "BayesianPCA":
        """Sample the posterior.

        Args:
            X: Data, rows x columns, NaN where a cell is missing.
            y: Ignored.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: For data that cannot be fitted: fewer than two rows or columns, fewer columns than components,
                as many components as describe the table exactly, a column without any value, infinite cells; with
                ``noise="diagonal"`` also a column that is constant or computed from others.
        """
        standardised = self.prepare(X)
        seed = seed_of(self)
        prior = PPCAPrior(self.mean_prior_scale, self.scale_prior_scale, self.noise_prior_scale)
        num_components, self.held_out_ = self._count(standardised)
        is_diagonal = self.noise == "diagonal"
        if is_diagonal:
            ppca.require_own_noise(standardised, num_components, getattr(self, "feature_names_in_", None))
        logdensity_fn, start, parameters = ppca_reduced.problem(
            standardised, num_components, prior, is_diagonal=is_diagonal
        )
        posterior = sampled(
            self,
            seed,
            logdensity_fn,
            start,
            manifold=Product({"components": Stiefel()}),
            keep=lambda position: parameters(position)._asdict(),
        )
        return self._take(posterior)

    def prepare(self, X: Any) -> Float[np.ndarray, "rows n"]:
        """Check options and the data of a fit, learn their standardisation, and return the standardised data."""
        data = self._validated(X, reset=True)
        self._check_fit(data)
        self._standardise_by(data)
        return self._standardised(data)

    def with_posterior(self, X: Any, posterior: Any) -> "BayesianPCA":
        """Set the fitted state from the data and the draws of a fit, for instance those of a run folder."""
        self.prepare(X)
        self.held_out_ = None
        return self._take(posterior)

    def _count(self, standardised: Float[np.ndarray, "rows n"]) -> tuple[int, HeldOutCells | None]:
        if self.n_components != "auto":
            return int(self.n_components), None
        held_out = held_out_cells(standardised, is_diagonal=self.noise == "diagonal")
        return number_of(held_out), held_out

    def _take(self, posterior: Any) -> "BayesianPCA":
        self.posterior_ = _with_aligned_components(posterior)
        draws = self._draws()
        self.components_ = mean_orthonormal(np.asarray(draws.components), up_to="nothing").T
        self.n_components_ = len(self.components_)
        variance, noise_variance = draws.scale**2, draws.noise**2
        along, in_all = ppca.noise_along(draws), ppca.noise_in_all(np.asarray(draws.noise), draws.mean.shape[1])
        self.explained_variance_ = (variance + along).mean(axis=0)
        self.explained_variance_ratio_ = (variance / (variance.sum(axis=-1) + in_all)[:, None]).mean(axis=0)
        self.noise_variance_ = noise_variance.mean(axis=0) if noise_variance.ndim > 1 else float(noise_variance.mean())
        self.mean_ = self.center_ + self.spread_ * draws.mean.mean(axis=0)
        return self

    def transform(self, X: Any) -> Float[np.ndarray, "rows p"]:
        """Compute posterior mean scores along the components, in standardised units.

        Args:
            X: Rows, NaN where a cell is missing.

        Returns:
            ``E[Lambda z | row]``, averaged over the posterior.
        """
        check_is_fitted(self)
        data = self._standardised(self._validated(X, reset=False))
        return self._of_rows(lambda found: found.score_mean, lambda mean: mean.mean(axis=0), data)

    def sample_scores(self, X: Any, *, random_state: int = 0) -> Float[np.ndarray, "draw rows p"]:
        """Draw scores of rows from their posterior, including the uncertainty of the parameters.

        Args:
            X: Rows, NaN where a cell is missing.
            random_state: Seed of the draws.

        Returns:
            Scores in standardised units, one set for each posterior draw that is used.
        """
        check_is_fitted(self)
        data = self._standardised(self._validated(X, reset=False))
        draws = self._draws(pooling.MOST_PREDICTIVE_DRAWS)
        mean, factor = pooling.over_rows(lambda theta, rows: ppca.row_posterior(theta, rows)[:2], draws, data)
        normal = np.random.default_rng(random_state).standard_normal(mean.shape)
        return mean + np.einsum("drpq,drq->drp", factor, normal)

    def score_quantiles(self, X: Any, levels: tuple[float, ...] = (0.05, 0.95)) -> Float[np.ndarray, "levels rows p"]:
        """Compute quantiles of the scores: exact quantiles of the mixture of normals over the posterior draws.

        Args:
            X: Rows, NaN where a cell is missing.
            levels: Probabilities.

        Returns:
            Quantiles in standardised units.

        Raises:
            TypeError: If the levels are not a sequence of numbers.
            ValueError: If a level is not in [0, 1].
        """
        check_is_fitted(self)
        levels = as_levels("score_quantiles", levels)
        data = self._standardised(self._validated(X, reset=False))

        def quantiles(found: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
            return np.moveaxis(Mixture(Normal, found).quantiles(levels), 0, 1)

        def moments(found: ppca.RowPosterior) -> tuple[jax.Array, jax.Array]:
            return found.score_mean, jax.numpy.linalg.norm(found.score_factor, axis=-1)

        return np.moveaxis(self._of_rows(moments, quantiles, data), 1, 0)

    def inverse_transform(self, X: Any) -> Float[np.ndarray, "rows n"]:
        """Map scores back to rows, in the data's units.

        Args:
            X: Scores, rows x p, as returned by ``transform``.

        Returns:
            The mean of the rows given the scores, at the posterior mean loadings.
        """
        check_is_fitted(self)
        scores = np.asarray(X, dtype=float)
        if scores.ndim != 2 or scores.shape[1] != self.components_.shape[0]:
            raise ValueError(
                f"inverse_transform: expected scores with {self.components_.shape[0]} columns, found shape "
                f"{scores.shape}."
            )
        return self.mean_ + self.spread_ * (scores @ self.components_)

    def score_samples(self, X: Any) -> Float[np.ndarray, " rows"]:
        """Compute the log posterior predictive density of each row in the data's units; missing cells are marginalised.

        Args:
            X: Rows, NaN where a cell is missing.

        Returns:
            The log of the predictive density, averaged over the posterior draws.
        """
        check_is_fitted(self)
        raw = self._validated(X, reset=False)
        return self._of_rows(
            lambda found: found.log_density, pooling.log_mean, self._standardised(raw)
        ) - self._log_volume(raw)

    def with_log_likelihood(self, X: Any) -> Any:
        """Return the draws with the log likelihood of each row, for ``az.loo`` and ``az.compare``.

        Args:
            X: The rows of the fit; missing cells are marginalised.

        Returns:
            ``posterior_`` with a group ``log_likelihood``, chain x draw x row, in the data's units; at most 4,000 draws
            of all chains.
        """
        check_is_fitted(self)
        raw = self._validated(X, reset=False)
        data = self._standardised(raw)

        def of_draws(draws: PPCAParameters) -> Float[np.ndarray, "draw rows"]:
            return self._of_rows(lambda found: found.log_density, np.transpose, data, draws).T - self._log_volume(raw)

        return pooling.with_log_likelihood(self.posterior_, "row", PPCAParameters, of_draws)

    def score(self, X: Any, y: Any = None) -> float:
        """Compute the mean of :meth:`score_samples`; y is ignored."""
        return float(self.score_samples(X).mean())

    def impute(self, X: Any, *, random_state: int = 0) -> Float[np.ndarray, "draw rows n"]:
        """Draw missing cells from their posterior predictive distribution.

        Args:
            X: Rows, NaN where a cell is missing.
            random_state: Seed of the draws.

        Returns:
            Completed copies of the rows in the data's units, one for each posterior draw that is used; observed cells
            are unchanged.
        """
        check_is_fitted(self)
        data = self._standardised(self._validated(X, reset=False))
        draws = self._draws(pooling.MOST_PREDICTIVE_DRAWS)
        with jax.enable_x64(True):
            keys = jax.random.split(jax.random.key(random_state), len(draws.noise))
        filled = pooling.over_rows(lambda item, rows: ppca.draw_cells(item[0], item[1], rows), (keys, draws), data)
        return self.center_ + self.spread_ * filled

    def fill(self, X: Any) -> Float[np.ndarray, "rows n"]:
        """Fill missing cells with their posterior predictive means.

        Args:
            X: Rows, NaN where a cell is missing.

        Returns:
            A completed copy of the rows in the data's units; observed cells are unchanged.
        """
        check_is_fitted(self)
        raw = self._validated(X, reset=False)
        data = self._standardised(raw)
        filled = self._in_blocks(ppca.fill_cells, lambda cells: cells.mean(axis=0), data, data.shape[1])
        return np.where(np.isnan(raw), self.center_ + self.spread_ * filled, raw)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _validated(self, X: Any, *, reset: bool) -> Float[np.ndarray, "rows n"]:
        least = 2 if reset else 1
        return np.asarray(validated(self, X, reset=reset, ensure_min_samples=least, ensure_min_features=least))

    def _check_fit(self, data: Float[np.ndarray, "rows n"]) -> None:
        num_columns = data.shape[1]
        if isinstance(self.n_components, str) and self.n_components != "auto":
            raise ValueError(
                f"BayesianPCA: {argument('n_components')} must be an integer or 'auto', found {self.n_components!r}."
            )
        p = 1 if self.n_components == "auto" else _checks.whole("BayesianPCA", "n_components", self.n_components)
        if p > num_columns:
            raise ValueError(
                f"BayesianPCA: {argument('n_components')} must be at most {num_columns}, the number of columns"
                f"{in_python(f' (n_features = {num_columns})')}, found {p}; choose one well below it."
            )
        _checks.chosen("BayesianPCA", "noise", self.noise, ("isotropic", "diagonal"))
        require_positive(self, "mean_prior_scale", "scale_prior_scale", "noise_prior_scale")
        require_values("BayesianPCA", data, getattr(self, "feature_names_in_", None))

    def _standardise_by(self, data: Float[np.ndarray, "rows n"]) -> None:
        unit = units(np.nanmax(np.abs(data), axis=0) if self.standardize else np.nanmax(np.abs(data)))
        center = np.nanmean(data / unit, axis=0)
        deviation = np.sqrt(np.nanmean((data / unit - center) ** 2, axis=0))
        if not self.standardize:
            deviation = np.full_like(deviation, np.sqrt(np.mean(deviation**2)))
        self.center_, deviation = unit * center, unit * deviation
        is_still = deviation <= 1e-12 * np.maximum(np.abs(self.center_), 1e-300)
        self.spread_ = np.where(is_still, 1.0, deviation)

    def _standardised(self, data: Float[np.ndarray, "rows n"]) -> Float[np.ndarray, "rows n"]:
        return (data - self.center_) / self.spread_

    def _log_volume(self, raw: Float[np.ndarray, "rows n"]) -> Float[np.ndarray, " rows"]:
        return np.sum(np.where(np.isnan(raw), 0.0, np.log(self.spread_)), axis=1)

    def _draws(self, most: int | None = None) -> PPCAParameters:
        """Draws of all chains along one axis, thinned evenly to at most ``most``."""
        return PPCAParameters(**pooling.pooled(self.posterior_, PPCAParameters._fields, most))

    def _of_rows(
        self,
        part: Callable[[ppca.RowPosterior], Any],
        average: Callable[[Any], np.ndarray],
        data: np.ndarray,
        draws: PPCAParameters | None = None,
    ) -> np.ndarray:
        """Reduce a function of draw and rows over the draws, for blocks of rows."""
        has_missing = bool(np.isnan(data).any())

        def of_draw(theta: PPCAParameters, rows: jax.Array) -> Any:
            return part(ppca.row_posterior(theta, rows, has_missing=has_missing))

        return self._in_blocks(of_draw, average, data, 2 * len(self.components_), draws)

    def _in_blocks(
        self,
        of_draw: Callable[..., Any],
        average: Callable[[Any], np.ndarray],
        data: np.ndarray,
        width: int,
        draws: PPCAParameters | None = None,
    ) -> np.ndarray:
        """Blocks of rows of one length, as large as memory allows for all draws with this many numbers per row."""
        draws = self._draws(pooling.MOST_PREDICTIVE_DRAWS) if draws is None else draws
        rows = pooling.padded(data)
        length = min(len(rows), max(1, _MOST_ENTRIES // (len(draws.noise) * width + data.shape[1])))
        rows = np.pad(rows, ((0, -len(rows) % length), (0, 0)))
        found = pooling.over_blocks(of_draw, draws, ((rows[i : i + length],) for i in range(0, len(data), length)))
        return np.concatenate([average(values) for values in found])[: len(data)]


def _with_aligned_components(tree: Any) -> Any:
    """Flip the columns of each draw to agree in sign with the mean."""
    tree = tree.copy()
    posterior = tree["posterior"].to_dataset()
    components = posterior["components"]
    enough = min(pooling.MOST_POOLED_DRAWS, max(400, 2**25 // components[0, 0].size))
    reference = align_signs(pooling.pooled(tree, ["components"], enough)["components"])[0].mean(axis=0)
    signs = np.concatenate([align_signs(block, reference)[1] for _, block in draw_blocks(components)], axis=1)
    by_draw = components[:, :, 0].copy(data=signs)
    tree["posterior"] = posterior.assign(
        components=mapped(lambda draws, signs: draws * signs[..., None, :], components, by_draw)
    )
    return tree
