"""The exact variance of a normal target under `sghmc` with batches: a linear map between two cycles of batches."""

import math

import numpy as np
from scipy.linalg import expm, solve_discrete_lyapunov


def linear_step(ordering: str, step: float, friction: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The map of (position, momentum), the effect of a unit error of the force, and the covariance of the noise.

    The target is a standard normal distribution, and a kick adds ``-step * (position + error)``.
    """
    kick, towards = np.array([[1.0, 0.0], [-step, 1.0]]), np.array([0.0, -step])

    def flow(t: float) -> np.ndarray:
        return np.array([[1.0, t], [0.0, 1.0]])

    kept = 1.0 - friction
    if ordering == "paper":
        damp = np.diag([1.0, kept])
        return (kick + damp - np.eye(2)) @ flow(step), towards, np.diag([0.0, 2.0 * friction])
    if ordering == "baoab":
        after = flow(step / 2) @ np.diag([1.0, kept]) @ flow(step / 2)
        noise = flow(step / 2) @ np.diag([0.0, 1.0 - kept**2]) @ flow(step / 2).T
        return after @ kick, after @ towards, noise
    # exact motion over half a step: van Loan's integral of the noise
    gamma = -math.log(kept) / step
    drift = np.array([[0.0, 1.0], [0.0, -gamma]])
    both = expm(np.block([[-drift, np.diag([0.0, 2.0 * gamma])], [np.zeros((2, 2)), drift.T]]) * step / 2)
    half = both[2:, 2:].T
    noise = half @ both[:2, 2:]
    return half @ kick @ half, half @ towards, half @ kick @ noise @ (half @ kick).T + noise


def variance(ordering: str, order: str, step: float, friction: float, num_batches: int, noise: float) -> float:
    """Exact stationary variance of the position after a step, averaged over a cycle of batches.

    Args:
        ordering: Order of the step.
        order: Order of the batches.
        step: Step size, in standard deviations of the target.
        friction: Fraction of the momentum lost per step.
        num_batches: Number of batches that make up the data.
        noise: Variance of the error of the force of one batch of a partition, in units of the target.

    Returns:
        The variance.
    """
    move, towards, fresh = linear_step(ordering, step, friction)
    if order == "independent":  # with replacement
        return solve_discrete_lyapunov(move, fresh + noise * (1 - 1 / num_batches) ** -1 * np.outer(towards, towards))[
            0, 0
        ]
    places = np.arange(num_batches)
    if order == "symmetric":
        places = np.concatenate([places, places[::-1]])
    errors = noise * np.where(places[:, None] == places, 1.0, -1.0 / (num_batches - 1))
    powers = [np.linalg.matrix_power(move, k) for k in range(len(places) + 1)]

    def added(steps: int) -> np.ndarray:
        effects = np.stack([powers[steps - 1 - k] @ towards for k in range(steps)])
        heat = sum(powers[k] @ fresh @ powers[k].T for k in range(steps))
        return heat + effects.T @ errors[:steps, :steps] @ effects

    start = solve_discrete_lyapunov(powers[-1], added(len(places)))
    each = [(powers[k] @ start @ powers[k].T + added(k))[0, 0] for k in range(1, len(places) + 1)]
    return float(np.mean(each))
