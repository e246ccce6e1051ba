"""Options of the estimators, shared with the command line; light to import."""

import dataclasses
from typing import Any


@dataclasses.dataclass(eq=False, repr=False)
class MLPOptions:
    """Options of :class:`geodax.models.BayesianMLPClassifier`.

    Args:
        widths: Units of the hidden layers; () is logistic regression.
        activation: "relu", "tanh", "gelu" or "silu".
        orthogonal: Whether hidden layers have orthonormal weights, on Stiefel manifolds.
        rank: Rank of the hidden layers' weights, one number or one a layer (None: full); they are held as singular
            value decompositions, on Stiefel manifolds.
        prior: "gaussian", "laplace", "student-t", "horseshoe" (one scale an array),
            "local-horseshoe", "hierarchical-horseshoe" (scales as parameters; the horseshoes have a least
            scale of 0.1), or rules as for geodax.nn.Priors, whose patterns must begin with *.
            Orthonormal weights are uniform.
        prior_scale: Scale of a prior given by name: a number, or "fan_in", which is 1 for the last weights of a
            network with orthonormal ones, since those keep lengths and leave all scaling to the last.
        inference: How the ensemble is made: "mcmc"; "whvi", "mean-field" or "mc-dropout", which fit
            a variational posterior for each chain by num_warmup steps with batches of batch_size, begin
            with the learning rate step_size, then draw num_samples networks from it, and look at no other
            option of a sampler; another name in geodax.models.mlp.INFERENCES; or an inference with settings of
            its own, which does not look at the options from here to num_chains.
        sampler: "sghmc" or, for free weights, "sgrld".
        metric: "identity", "rmsprop", "wenzel", "monge", "shampoo", or a metric of
            geodax.metrics.
        step_size: Step size of the sampler; None finds one during warm-up.
        friction: Of sghmc.
        temperature: 1 is the posterior, 0 an ensemble of optima. Under prior="horseshoe" anything below 1 draws
            the weights to zero, which is an error.
        batch_size: Examples of a batch. None takes 5,000 with inference="mcmc", which takes all examples where
            there are not two such batches, and 1,000 with the others.
        num_warmup: Iterations before the first draw.
        num_samples: Draws kept for each chain.
        thinning: Iterations between draws. A pass through n rows is n / batch_size iterations.
        num_chains: Number of chains, run side by side.
        calibration_fraction: Share of the rows that is held out from the fit to calibrate conformal predictions.
    """

    widths: Any = (50, 50)
    _: dataclasses.KW_ONLY
    activation: str = "relu"
    orthogonal: bool = False
    rank: Any = None
    prior: Any = "gaussian"
    prior_scale: Any = "fan_in"
    inference: Any = "mcmc"
    sampler: str = "sghmc"
    metric: Any = "identity"
    step_size: float | None = None
    friction: float = 0.1
    temperature: float = 1.0
    batch_size: int | None = None
    num_warmup: int = 2000
    num_samples: int = 100
    thinning: int = 20
    num_chains: int = 4
    calibration_fraction: float = 0.0


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class MLPRegressorOptions(MLPOptions):
    """Options of :class:`geodax.models.BayesianMLPRegressor`.

    Args:
        noise: Standard deviation of the noise in the units of y; None makes it a parameter, log-normal around 0.37
            standard deviations of y with a factor of e for one standard deviation.
    """

    noise: float | None = None
