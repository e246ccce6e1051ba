"""Options of the estimator, shared with the command line; light to import."""

import dataclasses


@dataclasses.dataclass(eq=False, repr=False)
class CCAOptions:
    """Options of :class:`geodax.models.HierarchicalCCA`.

    Args:
        n_shared: Number of shared latent variables q, less than the number of columns of either view.
        n_view_1: Number of latent variables specific to view 1, less than its number of columns.
        n_view_2: Number of latent variables specific to view 2, less than its number of columns.
        pooling: "hierarchical", "separate" or "complete": pooling of W and B across the groups.
        standardize: Divide each column by its standard deviation within groups; False divides all by one number.
        num_warmup: Warm-up iterations.
        num_samples: Number of draws kept per chain.
        num_chains: Number of chains.
        target_acceptance_rate: Acceptance rate targeted by warm-up; at 0.9 small groups give divergences.
        mean_prior_scale: Prior standard deviation of the means, in standardised units.
        scale_prior_scale: Scale of the half-normal prior of the scales, over the root of the number of columns.
        noise_prior_scale: Scale of the half-normal prior of the noise, in standardised units.
        spread_prior_scale: Scale of the half-normal prior of the spreads, in radians.
    """

    n_shared: int = 1
    n_view_1: int = 1
    n_view_2: int = 1
    _: dataclasses.KW_ONLY
    pooling: str = "hierarchical"
    standardize: bool = True
    num_warmup: int = 1000
    num_samples: int = 1000
    num_chains: int = 4
    target_acceptance_rate: float = 0.95
    mean_prior_scale: float = 5.0
    scale_prior_scale: float = 1.0
    noise_prior_scale: float = 1.0
    spread_prior_scale: float = 0.5
