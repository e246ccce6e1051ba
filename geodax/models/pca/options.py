"""Options of the estimator, shared with the command line; cheap to import."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(eq=False, repr=False)
class PCAOptions:
    """Options of :class:`geodax.models.BayesianPCA`.

    Args:
        n_components: Number of components p, at most the number of columns. "auto" takes the smallest number, up to 20,
            that predicts held-out cells about as well as the best.
        standardize: Whether to divide each column by its standard deviation. False divides all columns by one number,
            which keeps their relative scales.
        noise: "isotropic", the same noise in all columns, or "diagonal", a noise for each column: factor analysis.
        num_warmup: Number of warm-up iterations.
        num_samples: Number of stored draws per chain.
        num_chains: Number of chains.
        target_acceptance_rate: Acceptance rate targeted by warm-up; at 0.7 nearly equal eigenvalues give divergences.
        mean_prior_scale: Prior standard deviation of the mean, in standardised units.
        scale_prior_scale: Scale of the half-normal prior of the scales, in standardised units over sqrt(n).
        noise_prior_scale: Scale of the half-normal prior of the noise, in standardised units.
    """

    n_components: int | Literal["auto"] = 2
    _: dataclasses.KW_ONLY
    standardize: bool = True
    noise: Literal["isotropic", "diagonal"] = "isotropic"
    num_warmup: int = 1000
    num_samples: int = 1000
    num_chains: int = 4
    target_acceptance_rate: float = 0.9
    mean_prior_scale: float = 1.0
    scale_prior_scale: float = 1.0
    noise_prior_scale: float = 1.0
