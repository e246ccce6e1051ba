"""What a run refuses, before and after tracing, and what it does where the density breaks down."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import geodax as gx
from geodax.run.errors import StartError


def gaussian(position):
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(position))


def run(key, density=gaussian, position=None, *, manifold=None, **settings):
    position = jnp.zeros(3) if position is None else position
    algorithm = gx.hmc(density, manifold=manifold, step_size=0.3, num_integration_steps=2)
    settings = {"num_samples": 8, "num_chains": 2, "progress": False} | settings
    return gx.sample(jax.random.clone(key), algorithm, position, **settings)


ORTHONORMAL = jnp.eye(4, 2)


class Constant(eqx.Module):
    """A network whatever one gives it, and a start of another size than its own."""

    values: jax.Array
    activation: Any

    def __call__(self, x):
        return self.start(x)

    def start(self, key):
        return jnp.concatenate([self.values, self.values])


@pytest.fixture
def no_type_checks():
    """What users meet, without the tests' own checks of annotations in front."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


class TestPositions:
    def test_a_network_is_a_position_although_it_can_be_called(self, key):
        weights, _ = eqx.partition(eqx.nn.Linear(2, 1, key=key), eqx.is_inexact_array)
        draws = run(key, position=weights)
        assert draws["posterior"]["weight"].shape == (2, 8, 1, 2)

    def test_a_function_with_arrays_of_its_own_is_called(self, key):
        start = jax.tree_util.Partial(lambda shift, key: shift + jax.random.normal(key, (3,)), jnp.full(3, 5.0))
        draws = run(key, position=start)
        assert draws["posterior"]["position"].shape == (2, 8, 3)

    def test_a_network_with_functions_in_it_is_neither_called_nor_taken_for_a_position(self, key):
        """Catches a network that is called with a random key, whose output is then sampled in its place."""
        for network in (eqx.nn.MLP(4, 2, 5, 1, key=key), Constant(jnp.ones(3), jnp.tanh)):
            with pytest.raises(TypeError, match=r"holds arrays beside other.*equinox\.partition.*lambda key:"):
                run(key, position=network)

    @pytest.mark.thorough
    @pytest.mark.parametrize("activation", [None, jnp.tanh])
    @pytest.mark.parametrize(
        "wrapped",
        [
            lambda module: module.start,
            lambda module: eqx.filter_jit(module.start),
            lambda module: eqx.filter_jit(module),
            lambda module: eqx.Partial(module.start),
            lambda module: functools.partial(module.start),
            lambda module: jax.tree_util.Partial(module),
            lambda module: jax.jit(lambda key: module(key)),
        ],
    )
    def test_functions_around_arrays_are_called(self, key, wrapped, activation):
        """Catches a method of a module that is taken for the pytree of its arrays."""
        draws = run(key, position=wrapped(Constant(jnp.ones(3), activation)))
        assert draws["posterior"]["position"].shape == (2, 8, 6)

    def test_a_module_without_arrays_is_a_function(self, key):
        class Around(eqx.Module):
            scale: float

            def __call__(self, key):
                return self.scale * jax.random.normal(key, (3,))

        assert run(key, position=Around(2.0))["posterior"]["position"].shape == (2, 8, 3)

    def test_off_the_manifold(self, key):
        """Catches starts that are silently projected although they are far away."""
        position = {"w": 1.1 * ORTHONORMAL, "s": jnp.zeros(2)}
        with pytest.raises(StartError, match=r"position\.w is off its manifold.*chain 0.*nearest.*random_point"):
            run(key, position=position, manifold=gx.Product({"w": gx.Stiefel()}))

    def test_off_the_manifold_in_one_chain_of_a_stack(self, key):
        stack = jnp.stack([ORTHONORMAL, ORTHONORMAL.at[0, 0].set(1.2)])
        with pytest.raises(StartError, match=r"position is off its manifold at the start of chain 1.*residual"):
            run(key, position=stack, manifold=gx.Stiefel(), stacked=True)

    @pytest.mark.thorough
    @pytest.mark.parametrize("inner", [False, True])
    @pytest.mark.parametrize(
        ("options", "name"),
        [({"orthogonal": True}, r"weight \(OrthogonalLinear\)"), ({"rank": 2}, r"left \(LowRankLinear\)")],
    )
    def test_orthonormal_weights_are_not_moved_freely(self, key, options, name, inner):
        """Catches samplers without the geometry, under which weights without bounds were drawn."""
        network = gx.nn.MLP(4, 2, widths=(4,), key=key, **options)
        weights = eqx.filter(network, eqx.is_inexact_array)
        position = {"network": weights} if inner else weights
        path = r"position\.network" if inner else "position"
        with pytest.raises(StartError, match=rf"{path}\.layers\.0\.{name}.*manifold=gx\.nn\.geometry\(network\)"):
            run(key, position=position)
        geometry = gx.nn.geometry(network)
        draws = run(key, position=position, manifold=gx.Product({"network": geometry.tree}) if inner else geometry)
        assert "diverging" in draws["sample_stats"]

    @pytest.mark.thorough
    def test_a_start_in_other_coordinates_is_left_alone(self, key):
        """Arrays of such a layer that are not orthonormal, and layers whose weights are not among the parameters."""
        network = gx.nn.MLP(4, 2, widths=(4,), orthogonal=True, key=key)
        weights = eqx.filter(network, eqx.is_inexact_array)
        run(key, position=jax.tree.map(lambda leaf: leaf + 0.1, weights))
        run(key, position=eqx.tree_at(lambda tree: tree.layers[0].weight, weights, None))

    @pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
    def test_not_finite(self, key, value):
        position = {"a": jnp.zeros(2), "b": jnp.array([0.0, value])}
        with pytest.raises(StartError, match=r"b is not finite at the start of chain 0"):
            run(key, position=position)

    @pytest.mark.parametrize("manifold", [None, gx.Sphere(), gx.Stiefel()])
    def test_whole_numbers(self, key, manifold):
        """Catches integers that would be truncated at every step."""
        with pytest.raises(TypeError, match=r"^position: .*floating-point.*int"):
            run(key, position=jnp.eye(3, dtype=jnp.int32), manifold=manifold)

    def test_whole_numbers_in_a_leaf(self, key):
        with pytest.raises(TypeError, match=r"position\.count: expected a floating-point array.*jnp\.asarray"):
            run(key, position={"x": jnp.zeros(2), "count": jnp.zeros(2, jnp.int32)})

    def test_a_list_where_an_array_is_governed(self, key):
        with pytest.raises(TypeError, match=r"position: Stiefel\(\) governs one array.*is a list"):
            run(key, position=[[1.0, 0.0], [0.0, 1.0]], manifold=gx.Stiefel())

    def test_a_leaf_that_is_no_array(self, key):
        with pytest.raises(TypeError, match=r"a leaf of the position is a str, which is no array"):
            run(key, position={"x": "zero"})

    def test_nothing_to_sample(self, key):
        with pytest.raises(ValueError, match=r"holds no array, so there is nothing to sample"):
            run(key, position={})

    def test_transposed(self, key):
        """Catches matrices whose rows are orthonormal."""
        with pytest.raises(ValueError, match=r"position: Stiefel\(\) expects n x p.*\(2, 4\).*mean its transpose\?"):
            run(key, position=ORTHONORMAL.T, manifold=gx.Stiefel())

    def test_a_key_that_is_not_there(self, key):
        with pytest.raises(ValueError, match=r"the geometry names \['W'\].*does not have; it has \['s', 'w'\]"):
            run(
                key,
                position={"w": ORTHONORMAL, "s": jnp.zeros(2)},
                manifold=gx.Product({"W": gx.Stiefel()}),
            )

    def test_a_stack_of_another_length(self, key):
        with pytest.raises(ValueError, match=r"leading axis of 2 chains, but b has shape \(3, 1\)"):
            run(key, position={"a": jnp.zeros((2, 1)), "b": jnp.zeros((3, 1))}, stacked=True)


class TestNames:
    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("position", "name"),
        [
            ({"a.b": jnp.zeros(2), "a": {"b": jnp.zeros(2)}}, "a.b"),
            ({"h": [jnp.zeros(2)], "h.0": jnp.zeros(2)}, "h.0"),
        ],
    )
    def test_leaves_with_the_same_name(self, key, position, name):
        """Catches one of them that is lost without a word."""
        with pytest.raises(ValueError, match=f"{name!r} cannot name a recorded.*several leaves.*keep="):
            run(key, position=position)
        tree = run(key, position=position, keep=lambda p: dict(zip("xy", jax.tree.leaves(p), strict=True)))
        assert set(tree["posterior"].data_vars) == {"x", "y"}

    def test_leaves_with_the_same_name_that_are_kept(self, key):
        with pytest.raises(ValueError, match=r"'a\.b' cannot name a recorded.*several leaves"):
            run(key, keep=lambda x: {"a.b": x, "a": {"b": -x}})

    @pytest.mark.parametrize("name", ["zarr.json", "a\\b"])
    def test_names_that_are_files_or_folders_of_a_store(self, key, name, tmp_path):
        """Catches a run refused as if its folder were damaged, and a variable that another name is given on disk."""
        with pytest.raises(ValueError, match=r"cannot name a recorded variable.*zarr\.json.*keep="):
            run(key, position={name: jnp.zeros(2)}, store=tmp_path / "draws")
        assert not (tmp_path / "draws").exists()


class TestDensities:
    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (jnp.nan, r"log density is nan at the start of chain 0: the density is undefined there"),
            (-jnp.inf, r"log density is -inf at the start of chain 0: the point is outside the support"),
            (jnp.inf, r"log density is inf at the start of chain 0: the density is infinite there"),
        ],
    )
    def test_not_finite_at_the_start(self, key, value, message):
        with pytest.raises(StartError, match=message + r".*Start from a point where it is finite"):
            run(key, lambda x: jnp.sum(x) * 0.0 + value)

    def test_only_one_chain_outside_the_support(self, key):
        stack = jnp.array([[1.0], [-1.0]])
        with pytest.raises(StartError, match=r"-inf at the start of chain 1"):
            run(key, lambda x: jnp.where(x[0] > 0, -x[0], -jnp.inf), stack, stacked=True)

    def test_gradient_undefined_where_the_density_is_not(self, key):
        """Catches the usual trap of a norm at zero, which would stop the chain for ever."""
        position = {"a": jnp.ones(2), "b": jnp.zeros(2)}
        with pytest.raises(StartError, match=r"gradient .* with respect to b is not finite.*Look for sqrt, norm"):
            run(key, lambda p: gaussian(p) - jnp.linalg.norm(p["b"]), position)

    @pytest.mark.parametrize(
        ("density", "found"),
        [
            (lambda x: -(x**2), r"found shape \(3,\) and dtype float64; sum the log densities"),
            (lambda x: jnp.sum(x).astype(jnp.complex128), r"found shape \(\) and dtype complex128"),
            (lambda x: jnp.sum(x).astype(jnp.int32), r"found shape \(\) and dtype int32; return a float"),
            (lambda x: (jnp.sum(x), x), r"found tuple"),
            (lambda x: None, r"found NoneType"),
        ],
    )
    def test_values_that_are_no_density(self, key, density, found):
        with pytest.raises(TypeError, match=r"hmc: logdensity_fn must return one real.*" + found):
            run(key, density)

    @pytest.mark.parametrize("sampler", [gx.hmc, gx.nuts])
    def test_no_function(self, sampler, no_type_checks):
        with pytest.raises(TypeError, match=sampler.__name__ + r": logdensity_fn must be.*found 1\.0"):
            sampler(1.0)

    @pytest.mark.parametrize("sampler", [gx.hmc, gx.nuts])
    @pytest.mark.parametrize(
        ("manifold", "found"), [({"w": gx.Stiefel()}, "a dict"), (gx.Stiefel, "the class Stiefel itself")]
    )
    def test_no_manifold(self, sampler, manifold, found, no_type_checks):
        with pytest.raises(TypeError, match=rf"{sampler.__name__}: manifold must.*found {found}; wrap .* Product"):
            sampler(gaussian, manifold=manifold)


class TestCounts:
    def test_no_warmup_for_a_sampler_that_needs_it(self, key):
        with pytest.raises(ValueError, match=r"tunes its step size .* num_warmup is 0.*with a step_size"):
            gx.sample(key, gx.nuts(gaussian), jnp.zeros(3), num_samples=5, num_warmup=0)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"num_samples": 0}, r"num_samples must be at least 1, found 0"),
            ({"num_chains": 0}, r"num_chains must be at least 1, found 0"),
            ({"thinning": 0}, r"thinning must be at least 1, found 0"),
            ({"num_warmup": -1}, r"num_warmup must be at least 0, found -1"),
            ({"num_samples": True}, r"num_samples must be an integer, found True"),
            ({"num_samples": 2**20, "thinning": 2**11}, r"more than 2,147,483,646 iterations"),
        ],
    )
    def test_counts(self, key, settings, message):
        with pytest.raises((TypeError, ValueError), match=r"^sample: " + message):
            run(key, **settings)


class TestBrokenRegions:
    @pytest.mark.thorough
    @pytest.mark.parametrize("sampler", ["hmc", "nuts"])
    @pytest.mark.parametrize("value", [jnp.nan, -jnp.inf])
    def test_the_chain_stays_out_and_goes_on(self, key, sampler, value):
        """Catches accepted undefined points, a frozen chain, and a flag that is not raised."""

        def density(x):
            return jnp.where(x[0] > 1.0, value, -0.5 * jnp.sum(x**2))

        steps = {"num_integration_steps": 4} if sampler == "hmc" else {}
        algorithm = getattr(gx, sampler)(density, step_size=0.7, **steps)
        tree = gx.sample(key, algorithm, jnp.zeros(2), num_samples=800, num_chains=4, progress=False)
        first = tree["posterior"]["position"].values[..., 0]
        diverging = tree["sample_stats"]["diverging"].values
        assert np.isfinite(first).all()
        assert first.max() <= 1.0
        assert first.max() > 0.8
        # the chain moves on in the whole of the run
        assert (np.abs(np.diff(first[:, -100:], axis=1)) > 0).any(axis=1).all()
        assert 0.02 < diverging.mean() < 0.9
        if sampler == "hmc":
            # a trajectory that ends in the broken part is flagged, and its draw is the one before
            stayed = np.diff(first, axis=1) == 0
            assert stayed[diverging[:, 1:]].all()
            assert (tree["sample_stats"]["acceptance_rate"].values[diverging] == 0).all()
        # a normal law cut off at one: mean -phi(1)/Phi(1)
        means = first.reshape(4, 4, 200).mean(-1).ravel()
        assert abs(means.mean() + 0.2876) < 5 * means.std(ddof=1) / 4

    def test_a_sampler_that_is_always_rejected_says_so(self, key):
        """Catches non-finite draws when no trajectory survives."""
        tree = run(key, lambda x: jnp.where(jnp.all(x == 0), 0.0, jnp.nan) - jnp.sum(x**2))
        assert tree["sample_stats"]["diverging"].all()
        assert (tree["posterior"]["position"] == 0).all()


@pytest.mark.parametrize(("start", "is_hinted"), [(jnp.ones((4, 3)), True), (jnp.ones((5, 3)), False)])
def test_chains_taken_for_a_part_of_the_position(key, start, is_hinted):
    """Catches a bare message about shapes where stacked=True was forgotten."""
    target = gx.nuts(lambda x: -0.5 * jnp.sum((jnp.ones((2, 3)) @ x) ** 2))
    with pytest.raises(TypeError, match="same shape") as found:
        gx.sample(key, target, start, num_samples=2, num_warmup=2, num_chains=4, progress=False)
    assert any("pass stacked=True" in note for note in getattr(found.value, "__notes__", [])) == is_hinted
