"""The maximum of the marginal likelihood of a Laplace approximation over the precisions of prior and noise."""

import numpy as np

_MOST_STEPS = 100
_MOST_LOG = 80.0  # single precision ends at 88
_TOLERANCE = 1e-8
_SMALL, _ROUNDING = 1e-3, 1e-12  # a step whose relative gain is lost in the rounding of the values


def maximum(
    groups: list[tuple[np.ndarray, float]], noise: tuple[float, float] | None, start: list[float]
) -> np.ndarray:
    """Return the maximum of the log marginal likelihood, by Newton's method with halved steps in double precision.

    Args:
        groups: For every prior precision, the eigenvalues and the sum of squared parameters.
        noise: Sum of squared residuals and number of targets; None if the noise is part of the eigenvalues.
        start: Logarithms of the prior precisions, and that of the noise's precision.

    Returns:
        The logarithms at the maximum.

    Raises:
        ValueError: If there is no maximum.
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


def unbounded() -> ValueError:
    """Return the error for a marginal likelihood without a maximum."""
    return ValueError(
        "LaplacePosterior: the marginal likelihood has no maximum; if the parameters or the residuals are zero, or fit "
        "the data exactly, the precision is unbounded. Train the network first, and check its fit."
    )
