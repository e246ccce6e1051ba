"""Options of the estimator, shared with the command line; light to import."""

import dataclasses


@dataclasses.dataclass(eq=False, repr=False)
class FactorizationOptions:
    """Options of :class:`geodax.models.LowRankFactorization`.

    Args:
        rank: Rank of the matrix.
        factorization: "svd", or "bottleneck" for two ordinary factors.
        offsets: Whether users and items have offsets.
        interaction_scale: Prior root mean square of the entries of the matrix, in standard deviations of the
            ratings.
        offset_scale: Prior standard deviation of the offsets, in the same units.
        sampler: "sghmc", or "nuts" for up to some thousand ratings: its chains mix far better, and take longer. 500
            iterations of warm-up and 500 draws without thinning are usual. It finds its own step size, and takes all
            ratings in each step.
        step_size: Step size; None finds one during warm-up.
        friction: Fraction of the momentum removed per step.
        temperature: 1 is the posterior, 0 an ensemble of optima.
        batch_size: Number of ratings per batch; with fewer than two such batches all ratings are used.
        num_warmup: Iterations before the first draw.
        num_samples: Number of draws kept per chain.
        thinning: Iterations between draws.
        num_chains: Number of chains, run in parallel.
        target_acceptance_rate: Target of the step-size adaptation of "nuts".
    """

    rank: int = 10
    _: dataclasses.KW_ONLY
    factorization: str = "svd"
    offsets: bool = True
    interaction_scale: float = 0.5
    offset_scale: float = 0.5
    sampler: str = "sghmc"
    step_size: float | None = None
    friction: float = 0.1
    temperature: float = 1.0
    batch_size: int = 100000
    num_warmup: int = 2000
    num_samples: int = 100
    thinning: int = 20
    num_chains: int = 4
    target_acceptance_rate: float = 0.8
