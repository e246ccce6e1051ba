"""A log density in other coordinates: trees of transforms, the way there and back, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.geometry.transforms import Polar, unconstrain


def logdensity(position):
    return jnp.sum(position["frame"][0] ** 2) - 0.5 * jnp.sum(position["scale"] ** 2)


def point(dtype=jnp.float64):
    frame = jnp.linalg.qr(jnp.arange(6.0).reshape(3, 2) ** 2 + 1)[0]
    return {"frame": frame.astype(dtype), "scale": jnp.arange(2, dtype=dtype)}


def test_unnamed_parts_stay_as_they_are(dtype):
    u = unconstrain(logdensity, {"frame": Polar(3, 2)})
    z = u.unconstrain(point(dtype))
    assert z["frame"].shape == (6,)
    np.testing.assert_array_equal(z["scale"], point()["scale"])
    back = u.constrain(z)
    np.testing.assert_allclose(back["frame"], point(dtype)["frame"], atol=10 * jnp.finfo(dtype).eps)
    expected = logdensity(back) + Polar(3, 2).log_volume(z["frame"])
    assert u.logdensity(z).dtype == dtype
    np.testing.assert_allclose(u.logdensity(z), expected, rtol=10 * jnp.finfo(dtype).eps)


def test_stacks_lists_and_nodes_above_several_arrays():
    """Every array below a transform's node, and every copy along leading axes, adds its log volume."""
    frame = point()["frame"]
    position = [{"a": frame, "b": jnp.stack([frame, -frame])}, None, (frame, jnp.ones(()))]
    u = unconstrain(lambda x: jnp.sum(x[0]["b"]) + x[2][1], [Polar(3, 2), None, (Polar(3, 2), None)])
    z = u.unconstrain(position)
    assert jax.tree.map(jnp.shape, z) == [{"a": (6,), "b": (2, 6)}, None, ((6,), ())]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-14), u.constrain(z), position)
    log_volume = Polar(3, 2).log_volume(z[0]["a"])
    np.testing.assert_allclose(u.logdensity(z), 1.0 + 4 * log_volume, rtol=1e-12)


def test_a_bare_array_and_a_bare_transform():
    u = unconstrain(lambda q: q[0, 0], Polar(3, 2))
    z = u.unconstrain(point()["frame"])
    np.testing.assert_allclose(u.constrain(z), point()["frame"], atol=1e-14)


def test_works_under_jit_as_an_argument():
    u = unconstrain(logdensity, {"frame": Polar(3, 2)})
    z = u.unconstrain(point())
    np.testing.assert_allclose(jax.jit(lambda u, z: u.logdensity(z))(u, z), u.logdensity(z), rtol=1e-14)


def test_log_prob_of_a_distribution_keeps_its_parameters():
    """Under jit as an argument too, where parameters that had become constants would be those of the first call."""
    evaluate = jax.jit(lambda u, z: u.logdensity(z))
    z = Polar(3, 2).inverse(point()["frame"])
    for size in (1.0, 2.0):
        law = gx.distributions.MatrixLangevin(size * jnp.ones((3, 2)))
        expected = law.log_prob(point()["frame"]) + Polar(3, 2).log_volume(z)
        np.testing.assert_allclose(evaluate(unconstrain(law.log_prob, Polar(3, 2)), z), expected, rtol=1e-12)


@pytest.mark.thorough
def test_sample_keeps_constrained_draws(key):
    """The way a user goes."""
    u = unconstrain(logdensity, {"frame": Polar(3, 2)})
    run = gx.sample(
        key,
        gx.hmc(u.logdensity, num_integration_steps=4),
        u.unconstrain(point()),
        keep=u.constrain,
        num_samples=20,
        num_warmup=20,
        num_chains=2,
        progress=False,
    )
    frames = run["posterior"]["frame"].values
    assert frames.shape == (2, 20, 3, 2)
    np.testing.assert_allclose(
        np.swapaxes(frames, -1, -2) @ frames, np.broadcast_to(np.eye(2), (2, 20, 2, 2)), atol=1e-12
    )


@pytest.mark.parametrize(
    ("tree", "error", "message"),
    [
        ({"frames": Polar(3, 2)}, ValueError, "does not have"),
        ({"frame": Polar(4, 2)}, ValueError, r"Polar\(4, 2\) expects"),
        ({"frame": {"left": Polar(3, 2)}}, ValueError, "not a dict"),
        ([Polar(3, 2)], ValueError, "list of 1"),
        ({"frame": gx.Stiefel()}, TypeError, "Stiefel"),
    ],
)
def test_trees_that_do_not_fit_are_refused(tree, error, message):
    with pytest.raises(error, match=message):
        unconstrain(logdensity, tree).unconstrain(point())


def test_other_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match="logdensity_fn"):
        unconstrain(3.0, Polar(3, 2))  # pyright: ignore
    with pytest.raises(ValueError, match="n >= p"):
        Polar(2, 3)
    with pytest.raises(ValueError, match=r"6 unconstrained numbers, found shape \(5,\)"):
        Polar(3, 2).forward(jnp.zeros(5))
    with pytest.raises(ValueError, match=r"shape \(3, 2\), found shape \(4, 2\)"):
        Polar(3, 2).inverse(jnp.zeros((4, 2)))
