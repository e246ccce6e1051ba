"""Options of the estimator, shared with the command line; light to import."""

import dataclasses


@dataclasses.dataclass(eq=False, repr=False)
class UnitNetworkOptions:
    """Options of :class:`geodax.models.UnitNetworkRegressor`.

    Args:
        n_hidden: Number of hidden units H.
        weights: "unit", or "free" for normal weights, whose posterior has a ridge.
        bias: "joint": weights and bias of a unit form one unit vector, for any number of inputs. "separate": only the
            weights form a unit vector, as in the paper, and the bias is normal; requires at least 2 inputs, because
            with one input a unit vector is only a sign.
        num_warmup: Warm-up iterations.
        num_samples: Number of draws kept per chain.
        num_chains: Number of chains.
        target_acceptance_rate: Acceptance rate targeted by warm-up.
        bias_scale: Prior scale of the distances of the units' hinges from the centre of the data (joint; Student's
            t with as many degrees of freedom as there are inputs), or of the biases (separate; normal).
        output_scale: Prior standard deviation of the output weights times sqrt(n_hidden).
        noise_scale: Scale of the half-normal prior of the noise.
        weight_scale: Prior standard deviation of free weights.
    """

    n_hidden: int = 4
    _: dataclasses.KW_ONLY
    weights: str = "unit"
    bias: str = "joint"
    num_warmup: int = 1000
    num_samples: int = 1000
    num_chains: int = 4
    target_acceptance_rate: float = 0.9
    bias_scale: float = 1.0
    output_scale: float = 2.0
    noise_scale: float = 1.0
    weight_scale: float = 1.0
