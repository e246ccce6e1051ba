"""Hierarchical CCA in NumPyro has the density of the estimator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density

from geodax.interop.numpyro import hierarchical_cca
from geodax.models.cca import density as cca_density
from geodax.models.cca import pooling as cca_pooling
from geodax.models.cca.pooling import CCAPrior
from geodax.models.cca.signs import FRAMES, Frames

pytestmark = pytest.mark.relaxed

_PLACES = np.repeat([0, 1, 2], [4, 6, 5])


@pytest.mark.thorough
def test_hierarchical_cca_is_that_of_the_estimator():
    """Differences of log densities; volume elements of coordinates are the estimator's alone."""
    generator = np.random.default_rng(0)
    sizes = ((5, 2), (4, 2), (5, 1), (4, 1))
    reference = Frames(*(np.linalg.qr(generator.standard_normal(size))[0] for size in sizes))
    rows = generator.standard_normal((len(_PLACES), 9))
    data = cca_density.grouped_rows(rows, _PLACES)
    shape = cca_pooling.layout(3, reference)
    ours = cca_pooling.log_density(data, shape, CCAPrior(2.0, 0.8, 1.5, 0.4))
    options = {
        "reference": reference._asdict(),
        "mean_scale": 2.0,
        "scale_scale": 0.8,
        "noise_scale": 1.5,
        "spread_scale": 0.4,
    }
    estimate = cca_pooling.pooled_estimate(data, 5, (2, 1, 1), reference)
    views = [rows[:, :5], rows[:, 5:]]

    @jax.jit
    def both(position, point):
        theirs, trace = log_density(hierarchical_cca, (views, _PLACES), options, point)
        return ours(position), theirs, trace["shared_1"]["value"]

    natural = jax.jit(lambda position: cca_pooling.kept(position, shape))
    values = []
    for seed in range(3):
        position = jax.tree.map(
            jnp.asarray,
            cca_pooling.starting_point(jax.random.key(seed), data, estimate, "hierarchical", spread=1.0),
        )
        record = natural(position)
        point = {name: value for name, value in record.items() if name not in FRAMES}
        volume = jnp.sum(position["log_scales"]) + jnp.sum(position["log_spreads"])
        for name, chart, span in zip(FRAMES, shape.charts, shape.spans(), strict=True):
            point[f"deviation_{name}"] = position["deviations"][:, span]
            volume = volume + chart.log_volume(position["common"][span])
        density, theirs, frames = both(position, point)
        np.testing.assert_allclose(frames, record["shared_1"], atol=1e-9)
        values.append([density - volume, theirs])
    difference = np.diff(np.asarray(values), axis=0)
    np.testing.assert_allclose(difference[:, 0], difference[:, 1], rtol=1e-7)


def test_errors():
    with pytest.raises(ValueError, match="one group for each"):
        hierarchical_cca([np.zeros((3, 2)), np.zeros((4, 2))], np.zeros(3, int), reference={})
    with pytest.raises(ValueError, match="has no shared_1"):
        hierarchical_cca([np.zeros((3, 2)), np.zeros((3, 2))], np.zeros(3, int), reference={})
