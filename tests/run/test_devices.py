"""A run on a mesh with a chain and a data axis: equal draws, collectives counted, meshes that do not fit."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

import geodax as gx
from geodax import nn, vi
from geodax.run.advance import build_advance
from geodax.run.feeding import make_feed
from geodax.run.sharding import as_mesh

ROOT = Path(__file__).resolve().parents[2]
DATA = np.random.default_rng(8).normal(1.0, 2.0, size=(48, 3))
COLLECTIVE = re.compile(r"= .*? (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")


def posterior():
    return gx.Posterior(
        log_prior=lambda t: -0.5 * jnp.sum(t**2),
        log_likelihood=lambda t, b: -0.125 * jnp.sum((b - t[None]) ** 2, axis=-1),
        num_data=len(DATA),
    )


def draws(key, devices, algorithm, **settings):
    settings = {"batches": gx.data.batches(DATA, batch_size=12, order="epochs"), "num_samples": 8} | settings
    tree = gx.sample(
        jax.random.clone(key),
        algorithm,
        lambda k: jax.random.normal(k, (3,)),
        num_chains=2,
        devices=devices,
        progress=False,
        **settings,
    )
    return tree["posterior"]["position"].values


def stream():
    def start(first):
        while True:
            yield np.random.default_rng(first).choice(DATA, 12)
            first += 1

    return gx.data.stream(start)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["batches", "stream", "tuned with inner steps"])
def test_batches_shared_out_give_the_same_draws(key, kind):
    """Catches a mean in place of a sum, a part counted twice, noise that differs between the devices of a group."""
    options, settings = {"step_size": 0.01}, {}
    if kind == "tuned with inner steps":
        options, settings = {"num_inner_steps": 2}, {"num_warmup": 12}
    algorithm = gx.sghmc(posterior(), friction=0.2, **options)
    fed = lambda: {"batches": stream()} if kind == "stream" else {}  # noqa: E731
    one = draws(key, jax.devices()[:1], algorithm, **settings, **fed())
    two = draws(key, gx.device_mesh(chain=1, data=2), algorithm, **settings, **fed())
    np.testing.assert_allclose(two, one, rtol=1e-11, atol=1e-13)


def test_one_all_reduce_a_step_and_none_between_chains(key):
    """The gradient and the potential go into one collective; chains need none."""
    algorithm = gx.sgrld(posterior(), step_size=1e-3)
    feed = make_feed(gx.data.batches(DATA, batch_size=12), 1)
    for devices, expected in ((gx.device_mesh(chain=1, data=2), ["all-reduce"]), (gx.device_mesh(chain=2, data=1), [])):
        mesh = as_mesh("test", 2, devices, 12)
        parts = algorithm.step, None, lambda p: p
        advance = build_advance(
            lambda _, parts=parts: parts, feed=feed, num_warmup=0, thinning=1, buffer_length=4, mesh=mesh
        )
        states = jax.vmap(algorithm.init)(jnp.zeros((2, 3)))
        keys = jax.random.split(jax.random.clone(key), 2)
        number = np.int32(0)
        text = jax.jit(advance).lower((), states, (), keys, feed.load(0, 0), number, number).compile().as_text()
        assert COLLECTIVE.findall(text) == expected


@pytest.mark.thorough
def test_a_fit_on_two_devices_is_that_on_one(key):
    """Catches weights drawn for each example that are the same on both devices, and draws that are counted twice."""
    layer = nn.WHVILinear(3, 2, key=jax.random.clone(key), dtype=jnp.float64)
    network = nn.WithNoise(layer, 0.0, dtype=jnp.float64)
    data = (DATA, DATA[:, :2])

    def fitted(devices):
        fit = vi.fit(
            jax.random.clone(key),
            network,
            nn.GaussianLikelihood(),
            data,
            num_steps=6,
            batch_size=12,
            num_samples=2,
            devices=devices,
            progress=False,
        )
        return [np.asarray(x) for x in jax.tree.leaves(fit.network) if isinstance(x, jax.Array)], fit.history.elbo

    one = jax.tree.leaves(fitted(None))
    for mesh in ({"chain": 1, "data": 2}, {"chain": 2, "data": 1}):
        two = jax.tree.leaves(fitted(gx.device_mesh(**mesh)))
        for x, y in zip(one, two, strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("devices", "settings", "message"),
    [
        (lambda: gx.device_mesh(chain=1, data=2), {"batches": gx.data.batches(DATA, batch_size=9)}, "a batch of 9"),
        (lambda: Mesh(np.asarray(jax.devices()[:2]), ("x",)), {}, r"needs the axes .* found \['x'\]"),
        (lambda: gx.device_mesh(chain=2, data=2), {}, "2 times 2 devices were asked for, but there are 2"),
    ],
)
def test_meshes_that_do_not_fit_are_refused(key, devices, settings, message):
    with pytest.raises(ValueError, match=message):
        draws(key, devices(), gx.sghmc(posterior(), step_size=0.01, friction=0.2), **settings)


def test_a_density_with_a_shard_map_of_its_own_is_told_to_take_all_devices(key):
    mesh = Mesh(np.array(jax.devices()[:2]), ("rows",))
    rows, whole = jax.sharding.PartitionSpec("rows"), jax.sharding.PartitionSpec()
    own = jax.shard_map(lambda y: jax.lax.psum(jnp.sum(y), "rows"), mesh=mesh, in_specs=rows, out_specs=whole)
    sampler = gx.hmc(lambda x: -0.5 * x**2 * own(jnp.ones(2)), step_size=0.5, num_integration_steps=2)
    options = {"num_samples": 3, "num_chains": 2, "progress": False}
    with pytest.raises(ValueError, match="mesh") as caught:
        gx.sample(key, sampler, jnp.zeros(()), **options)
    assert "pass devices=1" in "".join(caught.value.__notes__)
    assert gx.sample(key, sampler, jnp.zeros(()), devices=1, **options)["posterior"]["position"].shape == (2, 3)


def test_a_data_axis_without_batches_is_refused(key):
    with pytest.raises(ValueError, match="there are no batches to share out"):
        draws(key, gx.device_mesh(chain=1, data=2), gx.hmc(lambda x: -jnp.sum(x**2), step_size=0.1), batches=None)


SCRIPT = textwrap.dedent(
    """
    import jax, jax.numpy as jnp, numpy as np
    jax.config.update("jax_enable_x64", True)
    import geodax as gx

    data = np.random.default_rng(8).normal(size=(64, 4))
    sphere = gx.Stiefel()
    flat = gx.Posterior(
        log_prior=lambda t: -0.5 * jnp.sum(t**2),
        log_likelihood=lambda t, b: -0.1 * jnp.sum((b @ t) ** 2, axis=-1),
        num_data=64,
    )
    exact = lambda x: jnp.sum(data[:8] @ x)
    vector = lambda key: jax.random.normal(key, (4, 2))
    frame = lambda key: sphere.random_point(key, jnp.zeros((4, 2)))
    metrics = {
        "identity": gx.metrics.Identity(),
        "rmsprop": gx.metrics.RMSProp(),
        "wenzel": gx.metrics.Wenzel(),
        "monge": gx.metrics.Monge(),
        "shampoo": gx.metrics.Shampoo(statistics_every=1, update_every=2),
    }
    cases = {f"sgrld {n}": (gx.sgrld(flat, metric=m, step_size=1e-3), vector, True) for n, m in metrics.items()} | {
        "sghmc on Stiefel": (gx.sghmc(flat, manifold=sphere, step_size=1e-2, friction=0.1), frame, True),
        "hmc": (gx.hmc(exact, manifold=sphere, step_size=0.05, num_integration_steps=4), frame, False),
        "nuts": (gx.nuts(exact, manifold=sphere, step_size=0.05), frame, False),
    }
    for name, (algorithm, start, has_batches) in cases.items():
        first = None
        meshes = [(1, 1), (2, 1), (4, 1), (8, 1)] + ([(1, 2), (1, 4), (1, 8), (4, 2)] if has_batches else [])
        for chain, part in meshes:
            fed = {"batches": gx.data.batches(data, batch_size=16)} if has_batches else {}
            mesh = gx.device_mesh(chain=chain, data=part, devices=jax.devices())
            tree = gx.sample(jax.random.key(1), algorithm, start, num_samples=5, num_chains=8, devices=mesh,
                             progress=False, **fed)
            draws = tree["posterior"]["position"].values
            first = draws if first is None else first
            np.testing.assert_allclose(draws, first, rtol=1e-9, atol=1e-11, err_msg=f"{name} on {chain} x {part}")
    print("finished")
    """
)


EIGENVALUES = textwrap.dedent(
    """
    import jax, jax.numpy as jnp
    import geodax as gx

    flat = gx.Posterior(
        log_prior=lambda w: -0.5 * jnp.sum(w**2),
        log_likelihood=lambda w, b: -jnp.sum(jnp.tanh(b @ w) ** 2, axis=-1),
        num_data=64,
    )
    shampoo = gx.metrics.Shampoo(block_size=64, statistics_every=1, update_every=1)
    gx.sample(
        jax.random.key(0),
        gx.sgrld(flat, metric=shampoo, step_size=1e-5),
        lambda key: 0.1 * jax.random.normal(key, (128, 64)),
        batches=gx.data.batches(jax.random.normal(jax.random.key(1), (64, 128)), batch_size=16),
        num_samples=40,
        num_chains=16,
        keep=lambda w: w[0, 0],
        progress=False,
    )
    print("finished")
    """
)


EXACT = textwrap.dedent(
    """
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import NamedSharding, PartitionSpec
    jax.config.update("jax_enable_x64", True)
    import geodax as gx

    data = np.random.default_rng(8).normal(size=(64, 4))
    mesh = gx.device_mesh(chain=1, data=8)
    found = []
    for placed in (jnp.asarray(data), jax.device_put(data, NamedSharding(mesh, PartitionSpec("data")))):
        algorithm = gx.hmc(lambda w: -jnp.sum(jnp.cosh(placed @ w)), step_size=0.02, num_integration_steps=3)
        step = jax.jit(algorithm.step).lower(jax.random.key(0), algorithm.init(jnp.zeros(4))).compile()
        tree = gx.sample(
            jax.random.key(1), algorithm, jnp.zeros(4), num_samples=8, num_chains=2, devices=1, progress=False
        )
        bytes = step.memory_analysis().argument_size_in_bytes
        found.append((step.as_text().count(" all-reduce("), bytes, tree["posterior"]["position"].values))
    (none, full, one), (single, part, eight) = found
    assert (none, single) == (0, 1), (none, single)
    assert full - part == data.nbytes * 7 // 8, (full, part)
    np.testing.assert_allclose(eight, one, rtol=1e-11, atol=1e-13)
    assert np.abs(one).min() > 0
    print("finished")
    """
)


def on_eight_devices(script: str, seconds: float, **environment: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env=os.environ
        | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "PYTHONPATH": str(ROOT)}
        | environment,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == "finished"


@pytest.mark.thorough
def test_an_exact_sampler_on_data_that_lie_on_eight_devices():
    """The pattern of the documentation: each device has its rows alone, one all-reduce a gradient, equal draws."""
    on_eight_devices(EXACT, 600, JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS="1")


@pytest.mark.slow
def test_eigenvalues_on_eight_devices_come_to_an_end():
    """Catches LAPACK calls that share a batch out to threads of which every one waits for such a call."""
    on_eight_devices(EIGENVALUES, 600)


@pytest.mark.slow
def test_every_sampler_on_one_to_eight_devices():
    """Equal up to rounding: the number of chains or examples on a device is a number in its program."""
    on_eight_devices(SCRIPT, 3000)
