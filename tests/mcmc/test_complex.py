"""Exact samplers on complex parameters: a normal distribution whose real and imaginary parts are correlated and unequal."""

import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from tests.marks import slow
from tests.suites.chains import assert_agree

# of Re z_1, Re z_2, Im z_1, Im z_2 and of the real s beside them
MEAN = np.array([3.0, -20.0, 1.0, 0.5, 2.0])
SPREAD = np.array([0.02, 30.0, 0.01, 15.0, 0.7])
CORRELATION = np.array(
    [
        [1.0, 0.3, -0.5, 0.0, 0.2],
        [0.3, 1.0, 0.0, 0.4, -0.3],
        [-0.5, 0.0, 1.0, 0.2, 0.0],
        [0.0, 0.4, 0.2, 1.0, 0.3],
        [0.2, -0.3, 0.0, 0.3, 1.0],
    ]
)


def standardized(position):
    vector = jnp.concatenate([position["z"].real, position["z"].imag, position["s"]])
    return (vector - MEAN) / SPREAD


def logdensity(position):
    y = standardized(position)
    return -0.5 * y @ jnp.asarray(np.linalg.inv(CORRELATION)) @ y


def statistics(position):
    y = standardized(position)
    return jnp.concatenate([y, (y[:, None] * y[None, :])[np.triu_indices(5)]])


SAMPLERS = {
    "hmc": lambda: gx.hmc(logdensity),
    "hmc-fixed-length": lambda: gx.hmc(logdensity, num_integration_steps=5, length_jitter=0.4),
    "nuts": lambda: gx.nuts(logdensity),
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "num_chains"),
    [
        ("hmc", 32),
        ("nuts", 32),
        slow("hmc-fixed-length", 32),
        slow("nuts", 8),
    ],
    ids=["hmc", "nuts", "hmc-fixed-length", "nuts-separate-warmups"],
)
def test_complex_and_real_leaves_have_their_distribution(name, num_chains, key):
    """Catches momenta, energies and scales of one part of a complex number, and gradients that are not conjugated."""
    tree = gx.sample(
        key,
        SAMPLERS[name](),
        {"z": jnp.asarray(MEAN[:2] + 1j * MEAN[2:4]), "s": jnp.asarray(MEAN[4:])},
        num_samples=6_400 // num_chains,
        num_warmup=200,
        num_chains=num_chains,
        keep=lambda x: {"statistics": statistics(x)},
        progress=False,
    )
    i, j = np.triu_indices(5)
    spread = np.concatenate([np.ones(5), np.sqrt(1 + CORRELATION[i, j] ** 2)])
    means = tree["posterior"]["statistics"].values.mean(axis=1)
    assert_agree(means, np.concatenate([np.zeros(5), CORRELATION[i, j]]), spread=spread, max_bias=0.1)
    stats = tree["sample_stats"]
    assert not stats["diverging"].values.any()
    assert 0.7 < stats["acceptance_rate"].values.mean() < 0.95
    if name == "nuts":  # scales have made it nearly round
        assert stats["n_steps"].values.mean() < 12
