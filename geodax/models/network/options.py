"""Options of the estimator, shared with the command line; light to import."""

import dataclasses


@dataclasses.dataclass(eq=False, repr=False)
class NetworkOptions:
    """Options of :class:`geodax.models.NetworkHMM`.

    Args:
        n_states: Number of states K.
        rank: Number of columns of each W, at most the number of classes less one.
        intercept: Whether each state's log rates have an intercept. The paper has none.
        counts: "poisson", as in the paper, or "negative-binomial" for overdispersed counts: each state's counts then
            have the variance mu + a mu^2 with its own dispersion a.
        diagonal: Whether to include counts within a class.
        num_starts: Number of partitions of the windows from which modes are searched.
        num_warmup: Warm-up iterations.
        num_samples: Number of draws kept per chain.
        num_chains: Number of chains.
        target_acceptance_rate: Acceptance rate targeted by warm-up.
        eigenvalue_scale: Prior standard deviation of the eigenvalues over the number of classes.
        intercept_scale: Prior standard deviation of the intercepts.
        transition_concentration: Concentration of the Dirichlet prior of each row of the transition matrix.
        dispersion_scale: Prior standard deviation of the logarithms of the dispersions.
    """

    n_states: int = 3
    rank: int = 2
    _: dataclasses.KW_ONLY
    intercept: bool = False
    counts: str = "poisson"
    diagonal: bool = True
    num_starts: int = 20
    num_warmup: int = 1000
    num_samples: int = 1000
    num_chains: int = 4
    target_acceptance_rate: float = 0.8
    eigenvalue_scale: float = 5.0
    intercept_scale: float = 5.0
    transition_concentration: float = 1.0
    dispersion_scale: float = 2.0
