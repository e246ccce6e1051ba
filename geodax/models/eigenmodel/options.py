"""Options of the estimator, shared with the command line; light to import."""

import dataclasses


@dataclasses.dataclass(eq=False, repr=False)
class EigenmodelOptions:
    """Options of :class:`geodax.models.Eigenmodel`.

    Args:
        rank: Number of eigenvectors p, at most the number of nodes less one.
        link: "probit" or "logit" for networks of 0 and 1, "log" for counts.
        num_warmup: Warm-up iterations.
        num_samples: Number of draws kept per chain.
        num_chains: Number of chains.
        target_acceptance_rate: Acceptance rate targeted by warm-up.
        eigenvalue_scale: Prior standard deviation of the eigenvalues over sqrt(n).
        intercept_scale: Prior standard deviation of the intercept.
    """

    rank: int = 2
    _: dataclasses.KW_ONLY
    link: str = "probit"
    num_warmup: int = 1000
    num_samples: int = 1000
    num_chains: int = 4
    target_acceptance_rate: float = 0.8
    eigenvalue_scale: float = 1.0
    intercept_scale: float = 10.0
