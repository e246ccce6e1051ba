"""Options of the estimators, shared with the command line; light to import."""

import dataclasses
from typing import Any


@dataclasses.dataclass(eq=False, repr=False)
class MLPOptions:
    """Options of :class:`geodax.models.BayesianMLPClassifier` and :class:`geodax.models.BayesianMLPRegressor`.

    Args:
        widths: Numbers of units in the hidden layers; () is logistic regression.
        activation: "relu", "tanh", "gelu" or "silu".
        orthogonal: Whether hidden layers have orthonormal weights, on Stiefel manifolds.
        rank: Rank of the hidden layers' weights, one number or one per layer (None: full). These weights are stored as
            singular value decompositions, on Stiefel manifolds.
        prior: "gaussian", "laplace", "student-t", "horseshoe" (one scale per array), "local-horseshoe",
            "hierarchical-horseshoe" (scales as parameters; the horseshoes have a least scale of 0.1), or rules as for
            geodax.nn.Priors, whose patterns must begin with "*". Orthonormal weights are uniform.
        prior_scale: Scale of a prior given by name: a number, or "fan_in", which is sqrt(2 / number of inputs of the
            layer), and 1 for biases. With orthonormal layers, "fan_in" is 1 for the last weights: orthonormal layers
            preserve lengths, so only the last layer scales the outputs.
        inference: Inference method: "mcmc"; "ensemble", num_chains networks trained independently for num_warmup steps;
            "swag" or "multi-swag", the same for one or num_chains networks, then num_samples draws a chain from normal
            distributions around the path of gradient descent with the learning rate step_size; "laplace", an ensemble
            and num_samples draws of the Laplace approximation of each network's last layer; "whvi", "mean-field",
            "mc-dropout", "ivon" or "noisy-kfac", which fit a variational posterior for each chain with num_warmup steps
            and the initial learning rate step_size, then draw num_samples networks from it. These take batches of
            batch_size and ignore the other sampler options. Or another name in geodax.models.mlp.INFERENCES, or a
            configured inference, which ignores the options from here to num_chains.
        sampler: "sghmc" or, for free weights, "sgrld".
        metric: "identity", "rmsprop", "wenzel", "monge", "shampoo", or a metric of
            geodax.metrics.
        step_size: Step size of the sampler; None finds one during warm-up.
        friction: Friction of sghmc.
        temperature: 1 is the posterior, 0 an ensemble of optima. Under prior="horseshoe" temperatures below 1 collapse
            the weights to zero and raise an error.
        batch_size: Number of examples per batch. None selects for inference="mcmc" and sampler="sghmc" an eighth of the
            examples, at most 1,000, and four steps an iteration, or all examples if there are fewer than 2,000; for
            "sgrld" 5,000, or all if there are fewer than 10,000; for other inferences 1,000.
        num_warmup: Iterations before the first draw.
        num_samples: Number of draws kept per chain.
        thinning: Iterations between draws. A pass through n rows is n / batch_size iterations.
        num_chains: Number of chains, run in parallel.
        calibration_fraction: Fraction of the rows held out from the fit to calibrate conformal predictions.
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
class MLPClassifierOptions(MLPOptions):
    """Further options of :class:`geodax.models.BayesianMLPClassifier`.

    Args:
        likelihood: "categorical", or "ordinal" for ordered classes: the network has one output, and cut points between
            the classes are parameters (cumulative logit model).
        class_order: The classes from lowest to highest, for "ordinal"; None orders numbers by value, and raises an
            error for names.
        class_weight: Weights of classes, as in scikit-learn: a dict, or "balanced", with which all classes have the
            same total weight. They multiply the weights of the rows.
        temperature_scaling: Whether predicted probabilities are sharpened where leave-one-out predictions of the fitted
            rows show the ensemble to be under-confident (geodax.predictive.loo_temperature). Networks that are optima
            (inference="ensemble", "swag" and "multi-swag", or temperature=0) are never scaled, nor fits with groups.
    """

    likelihood: str = "categorical"
    class_order: Any = None
    class_weight: Any = None
    temperature_scaling: bool = True


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class MLPRegressorOptions(MLPOptions):
    """Options of :class:`geodax.models.BayesianMLPRegressor`.

    Args:
        likelihood: Distribution of y given the network's outputs: "gaussian"; "heteroscedastic", normal with noise that
            depends on the inputs; "student-t", with 4 degrees of freedom, for outliers; "log-normal", for positive
            numbers whose errors grow with their size, such as prices; "poisson" or "negative-binomial" for counts, with
            the logarithm of the mean as output; or a geodax.nn.CustomLikelihood of y in its own units.
        noise: Standard deviation of the noise in the units of y, for "student-t" its scale, for "log-normal" that of
            log y; None makes it a parameter with a log-normal prior: median 0.37 standard deviations of y, and a factor
            of e per standard deviation.
            For "negative-binomial" it is the standard deviation of the factor of the Poisson mean, the square root of
            the dispersion alpha.
    """

    likelihood: Any = "gaussian"
    noise: float | None = None
