"""The maximum of the marginal likelihood of a Laplace approximation over the precisions of prior and noise.

And a warning where the approximation is far less sure than the network. Along an eigenvector of the Gauss-Newton matrix
with the eigenvalue g, a draw from the posterior with the precision p lowers the log likelihood of the data by g / 2 p
on average; the sum of g / p is MacKay's number of well-determined parameters.
"""

import numpy as np

from geodax import _checks

_MOST_STEPS = 100
_MOST_LOG = 80.0  # single precision ends at 88
_TOLERANCE = 1e-8
_MOST_RATIO, _LEAST_LOSS = 20.0, 0.02  # of the misfits of draws and network; in nats an example
_SMALL, _ROUNDING = 1e-3, 1e-12  # a step whose relative gain is lost in the rounding of the values


def maximum(
    groups: list[tuple[np.ndarray, float]], noise: tuple[float, float] | None, start: list[float]
) -> np.ndarray:
    """Return the maximum of the log marginal likelihood, by Newton's method with halved steps in double precision.

    The groups are, for every prior precision, the eigenvalues and the sum of squared parameters; the noise is the sum
    of squared residuals and the number of targets, None if it is part of the eigenvalues. The start and the result are
    logarithms of the prior precisions, and that of the noise's precision. Raises ValueError if there is no maximum.
    """

    def value(u: np.ndarray) -> float:
        beta = np.exp(u[-1]) if noise else 1.0
        total = 0.5 * (noise[1] * u[-1] - beta * noise[0]) if noise else 0.0
        for log_delta, (values, square) in zip(u, groups, strict=False):
            delta = np.exp(log_delta)
            total += 0.5 * (values.size * log_delta - delta * square - np.sum(np.log(beta * values + delta)))
        return float(total)

    u = np.asarray(start)
    for _ in range(_MOST_STEPS):
        beta, gradient, hessian = np.exp(u[-1]) if noise else 1.0, np.zeros(len(u)), np.zeros((len(u), len(u)))
        if noise:
            gradient[-1], hessian[-1, -1] = noise[1] - beta * noise[0], -beta * noise[0]
        for i, (values, square) in enumerate(groups):
            delta = np.exp(u[i])
            share = beta * values / (beta * values + delta)  # determined by the data, not the prior
            curvature = np.sum(share * (1.0 - share))
            gradient[i] = share.sum() - delta * square
            hessian[i, i] = -delta * square - curvature
            if noise:
                gradient[-1] -= share.sum()
                hessian[-1, -1] -= curvature
                hessian[i, -1] = hessian[-1, i] = curvature
        if not np.all(np.diagonal(hessian)):
            break  # neither parameters nor curvature
        move = -np.linalg.solve(hessian, gradient)
        move = move * min(1.0, 3.0 / np.abs(move).max(initial=1.0))
        before, size = value(u), 1.0
        is_lost = np.abs(move).max() < _SMALL and gradient @ move < _ROUNDING * abs(before)
        if np.abs(move).max() < _TOLERANCE or is_lost:
            return u + move
        while not value(u + size * move) >= before and size > _TOLERANCE:
            size /= 2.0
        u = u + size * move
        if np.abs(u).max() > _MOST_LOG:
            break
    raise unbounded()


def warn_if_vague(owner: str, num_determined: float, misfit: float, num_data: float) -> None:
    """Warn if draws fit the data of a classifier far worse than the network that they are drawn around.

    ``misfit`` is minus the log likelihood of the data.
    """
    lost = 0.5 * num_determined
    if lost > _MOST_RATIO * misfit and lost > _LEAST_LOSS * num_data:
        _checks.warn(
            f"{owner}: the network has a log likelihood of {-misfit / num_data:.2g} an example of the training data, "
            f"its draws have about {-(misfit + lost) / num_data:.2g}. It is so sure of its labels that its log "
            "likelihood is nearly flat, and the posterior nearly the prior: predictions will be far less sure than the "
            "network's. Compare both on held-out data, and choose the prior_variance with the highest log probability "
            "there, often 0.01 or less."
        )


def unbounded() -> ValueError:
    """Return the error for a marginal likelihood without a maximum."""
    return ValueError(
        "LaplacePosterior: the marginal likelihood has no maximum; if the parameters or the residuals are zero, or fit "
        "the data exactly, the precision is unbounded. Train the network first, and check its fit."
    )
