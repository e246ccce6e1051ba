"""Initial positions for a ReLU network: hinges at random rows of the data, chosen by a random search.

The posterior of a network has modes that differ by more than a permutation of the units, and chains do not move between
them. Starting from the best fit of a short search keeps most chains out of poor modes. Given the hidden units, the
output weights and the intercept solve a ridge regression. A search changes one unit at a time to one of many candidates
with random or nearby hinges and keeps changes that lower the penalised sum of squares; the best of several searches is
used. Chains search independently and may still end in different modes, which R-hat of the predictions shows.
"""

import jax
import numpy as np
from jaxtyping import Float

from geodax._types import Position, PRNGKey
from geodax.models.unit_network.density import UnitNetworkForm, UnitNetworkPrior, bias_factor

_MOST_ROWS = 300
_NUM_SEARCHES, _NUM_ROUNDS, _NUM_TRIALS = 6, 10, 32
_LEAST_NOISE = 0.01


def starting_point(
    key: PRNGKey,
    inputs: Float[np.ndarray, "rows D"],
    targets: Float[np.ndarray, " rows"],
    num_hidden: int,
    form: UnitNetworkForm,
    prior: UnitNetworkPrior,
) -> Position:
    """Find an initial position for one chain, for standardised data: the best of several searches.

    In each round a search revises each unit, keeping the best of many candidates, under the penalty of the output
    weights' prior.
    """
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    chosen = generator.permutation(len(targets))[:_MOST_ROWS]
    x, y = inputs[chosen], targets[chosen]
    factor = bias_factor(form, prior, x.shape[1])
    found = [_search(generator, x, y, num_hidden, prior) for _ in range(_NUM_SEARCHES)]
    _, units, output, intercept, noise = min(found, key=lambda search: search[0])
    weights, bias = units[:, :-1], units[:, -1:] / factor if form.bias == "joint" else units[:, -1:]
    together = np.concatenate([weights, bias], axis=1) if form.bias == "joint" else weights
    length = np.linalg.norm(together, axis=1)
    if form.weights == "free":
        length = length / (prior.weight_scale * together.shape[1] ** 0.5)
    position = {
        "units": together / length[:, None],
        "output": output * length,
        "intercept": np.asarray(intercept),
        "log_noise": np.asarray(np.log(noise) + 0.1 * generator.standard_normal()),
    }
    return position if form.bias == "joint" else position | {"bias": bias[:, 0] / length}


def _search(generator, x, y, num_hidden: int, prior: UnitNetworkPrior):
    """Return loss, units (H x (D + 1), unit weights and biases), output weights, intercept and noise."""
    current = _anywhere(generator, x, num_hidden)
    loss, solution, variance = _ridge(x, y, current[None], prior, float(y.var()))
    best = loss[0], current, solution[0]
    for step in range(_NUM_ROUNDS * num_hidden):
        h = step % num_hidden
        trials = np.tile(best[1], (_NUM_TRIALS, 1, 1))
        half = _NUM_TRIALS // 2
        trials[:half, h] = _anywhere(generator, x, half)
        size = 10 ** generator.uniform(-2, 0, (_NUM_TRIALS - half, 1))
        trials[half:, h] += size * generator.standard_normal((_NUM_TRIALS - half, x.shape[1] + 1))
        trials[half:, h] /= np.linalg.norm(trials[half:, h, :-1], axis=1, keepdims=True)
        loss, solution, _ = _ridge(x, y, trials, prior, variance)
        k = int(np.argmin(loss))
        if loss[k] < best[0]:
            _, _, variance = _ridge(x, y, trials[k][None], prior, variance)
            best = loss[k], trials[k], solution[k]
    return best[0], best[1], best[2][:-1], float(best[2][-1]), variance**0.5


def _anywhere(generator, x: Float[np.ndarray, "rows D"], number: int) -> Float[np.ndarray, "number K"]:
    """Units with random directions whose hinges pass near random rows."""
    weights = generator.standard_normal((number, x.shape[1]))
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    hinges = x[generator.integers(0, len(x), number)]
    bias = 0.1 * generator.standard_normal(number) - np.sum(weights * hinges, axis=1)
    return np.concatenate([weights, bias[:, None]], axis=1)


def _ridge(x, y, units: Float[np.ndarray, "trial H K"], prior: UnitNetworkPrior, variance: float):
    """Penalised sums of squares, ridge regression solutions, and the noise variance of the first candidate."""
    hidden = np.maximum(0.0, x @ np.swapaxes(units[..., :-1], 1, 2) + units[:, None, :, -1])
    design = np.concatenate([hidden, np.ones((*hidden.shape[:2], 1))], axis=2)
    num_hidden = units.shape[1]
    precision = np.append(np.full(num_hidden, num_hidden / prior.output_scale**2), prior.intercept_scale**-2.0)
    transposed = np.swapaxes(design, 1, 2)
    gram = transposed @ design + variance * np.diag(precision)
    solution = np.linalg.solve(gram, (transposed @ y)[..., None])[..., 0]
    squares = np.sum((y - np.einsum("tnk,tk->tn", design, solution)) ** 2, axis=1)
    left = max(float(squares[0]) / len(y), _LEAST_NOISE**2)
    return squares + variance * np.sum(precision * solution**2, axis=1), solution, left
