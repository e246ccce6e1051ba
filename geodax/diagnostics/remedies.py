"""Advice of findings that differs between a program and the command line, whose models are given."""

from geodax._wording import argument, in_python

_SMALLER = "the data may determine too little: choose a smaller model, such as one of lower rank or with fewer units."


def of_divergences() -> str:
    """Advice on divergent trajectories."""
    option = in_python("the target acceptance rate", argument("target_acceptance_rate"))
    reparametrised = (
        "reparametrise the model there, for instance with non-centred scales. If the log density is NaN or -inf in a "
        "part of the space, sample a variable without that bound instead, such as the logarithm of a positive one, "
        "with the Jacobian in the log density."
    )
    return (
        f"Raise {option}, such as to 0.95 or 0.99, so that the warm-up finds a smaller step. If divergences remain, "
        + in_python(reparametrised, _SMALLER)
    )


def of_funnels() -> str:
    """Advice on a density that is narrow at one end and wide at the other."""
    reparametrised = (
        "Reparametrise the group whose scale this is with a non-centred form: sample z from a standard normal "
        "distribution and set theta = mean + scale * z, instead of theta from a normal distribution with that mean and "
        "scale."
    )
    smaller_step = argument("target_acceptance_rate", 0.95)
    return (
        f"{in_python(reparametrised, f'Here {_SMALLER}')} A smaller step size ({smaller_step}) only shifts the limit."
    )


def of_slow_energy() -> str:
    """Advice on heavy tails."""
    return in_python(
        "Reparametrise heavy tails and funnels (non-centred scales, logarithms of variances), or warm up longer.",
        f"Warm up longer ({argument('num_warmup')}).",
    )


def of_drifts() -> str:
    """Advice on chains that have not converged."""
    return (
        f"Warm up longer ({argument('num_warmup')}), and check that inputs have comparable scales and are not nearly "
        "collinear: small steps need long to move along directions that the data hardly determine."
    )


def of_small_moves() -> str:
    """Advice on chains of a stochastic-gradient sampler that move too little."""
    cheaper = in_python("gx.train_ensemble and gx.swag", f"{argument('inference', 'ensemble')} and swag")
    return (
        "Use a larger step size, or let warm-up find it, and run more iterations with more thinning; half the step "
        f"with twice the thinning is the same sampler time again. {cheaper} cost less."
    )
