"""Options of a posterior that reduce memory, with parameters that are split over devices."""

import functools

import jax
import jax.numpy as jnp
import pytest

import geodax as gx
from geodax.run.errors import CheckpointError
from geodax.sgmcmc.control_variates import control_variates
from tests.marks import slow
from tests.run.test_split import DATA, METRICS, assert_equal, compiled, draws, log_likelihood, start


def posterior(num_data=64, likelihood=log_likelihood, **options):
    return gx.Posterior(
        log_prior=lambda p: -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(p)),
        log_likelihood=likelihood,
        num_data=num_data,
        **options,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [None, jnp.bfloat16])
def test_draws_are_those_of_one_device(key, dtype):
    """Catches micro-batches of the whole batch on each device, and positions that are kept in half precision."""
    target = posterior(num_micro_batches=2, checkpoint_activations=True, compute_dtype=dtype)
    algorithm = gx.sgrld(target, metric=gx.metrics.RMSProp(), step_size=1e-3)
    one = draws(key, algorithm, start(), jax.devices()[:1])
    two = draws(key, algorithm, gx.shard(start(), gx.device_mesh(chain=1, model=2)))
    if dtype is None:
        assert_equal(two, one)
        return
    for name, values in one.items():  # sums over examples are rounded to three digits before they are added up
        moved = abs(values - values[:, :1]).max()
        assert abs(two[name] - values).max() < 0.02 * moved, name


@pytest.mark.thorough
def test_options_reduce_temporaries():
    """Catches activations that the re-gathering of parameters keeps although the likelihood computes them again."""

    def through(p, x, each=lambda function: function):
        for layer in sorted(p):
            x = each(lambda x, w: jnp.tanh(x @ w))(x, p[layer])
        return -jnp.sum(x**2, axis=-1)

    position, mesh = {str(i): jnp.ones((64, 64)) for i in range(3)}, gx.device_mesh(chain=1, model=2)

    def temporaries(likelihood=through, **options):
        target = posterior(1024, likelihood, **options)
        program, *_ = compiled(gx.sgrld(target, step_size=1e-6), position, mesh, batch_size=1024)
        memory = program.memory_analysis()
        assert memory is not None
        return memory.temp_size_in_bytes, program.cost_analysis()["flops"]

    (plain, flops), (parts, _) = temporaries(), temporaries(num_micro_batches=8)
    layer = 512 * 64 * 8  # the activations of a layer at the examples of a device
    assert parts < plain - 2 * layer
    again, more = temporaries(functools.partial(through, each=jax.checkpoint))
    assert again <= plain
    assert more > 1.2 * flops  # the forward pass is computed again


def centered(center, **options):
    return control_variates(posterior(**options), center, DATA, chunk_size=16)


def off(scale=0.9):
    return jax.tree.map(lambda leaf: scale * leaf, start())


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", ["monge", slow("rmsprop"), slow("sghmc")])
def test_control_variates_of_a_split_position(key, sampler, tmp_path):
    """Catches a centre of one device's entries, a slope added on each device, and resumes with another centre."""

    def run(center, position, devices=None, **settings):
        target = centered(center, num_micro_batches=2)
        make = gx.sghmc if sampler == "sghmc" else functools.partial(gx.sgrld, metric=METRICS[sampler], step_size=1e-3)
        warmup = {"num_warmup": 12} if sampler == "sghmc" else {}
        return draws(key, make(target), position, devices, **warmup, **settings)

    mesh = gx.device_mesh(chain=1, model=2)
    one = run(off(), start(), jax.devices()[:1])
    center = gx.shard(off(), mesh)
    slope = centered(center).log_likelihood.slope
    assert all(slope[name].sharding == leaf.sharding for name, leaf in center.items())
    run(center, gx.shard(start(), mesh), num_samples=3, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match="its log density at the starting points is"):
        run(gx.shard(off(0.5), mesh), gx.shard(start(), mesh), checkpoint=tmp_path)
    assert_equal(run(center, gx.shard(start(), mesh), checkpoint=tmp_path), one)
    if sampler == "monge":
        assert_equal(run(off(), gx.shard(start(), mesh)), one)  # a whole centre is divided by the run
        with pytest.raises(ValueError, match="the centre of the control variates is split over devices"):
            run(center, start(), jax.devices()[:1])


@pytest.mark.thorough
def test_inner_steps_of_a_split_position(key, tmp_path):
    """Catches batches of inner steps that devices divide in place of the examples, in the warm-up and in checkpoints."""
    algorithm = gx.sghmc(posterior(), num_inner_steps=2)
    one = draws(key, algorithm, start(), jax.devices()[:1], num_warmup=12)
    position = gx.shard(start(), gx.device_mesh(chain=1, model=2))
    draws(key, algorithm, position, num_warmup=12, num_samples=3, checkpoint=tmp_path)
    assert_equal(draws(key, algorithm, position, num_warmup=12, checkpoint=tmp_path), one)
