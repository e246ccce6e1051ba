"""Parameters split over devices: equal draws, nothing gathered outside the forward pass, resumes, rules, messages."""

import os
import re
import subprocess
import sys
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import geodax as gx
from geodax import nn, vi
from geodax.run.advance import bound, build_advance
from geodax.run.content import content_of
from geodax.run.errors import CheckpointError, StartError
from geodax.run.feeding import make_feed
from geodax.run.sharding import as_mesh
from geodax.run.split import split_of
from geodax.sgmcmc.control_variates import control_variates
from tests.marks import slow
from tests.run.test_devices import ROOT, on_eight_devices
from tests.run.test_hosts import free_port

# Orbax leaves an event loop behind where a damaged checkpoint cannot be read
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
DATA = np.random.default_rng(8).normal(size=(64, 4))
GENERATOR = np.random.default_rng(3)
START = {"w": 0.3 * GENERATOR.normal(size=(4, 8)), "v": 0.3 * GENERATOR.normal(size=(8, 3)), "b": np.zeros(3)}


def log_likelihood(p, x):
    return -0.5 * jnp.sum((jnp.tanh(x @ p["w"]) @ p["v"] + p["b"][None] - x[:, :3]) ** 2, axis=-1)


def posterior():
    return gx.Posterior(
        log_prior=lambda p: -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(p)),
        log_likelihood=log_likelihood,
        num_data=len(DATA),
    )


def draws(key, algorithm, position, devices=None, **settings):
    settings = {"num_samples": 6, "num_chains": 2, "batches": gx.data.batches(DATA, batch_size=8)} | settings
    tree = gx.sample(jax.random.clone(key), algorithm, position, devices=devices, progress=False, **settings)
    return {name: tree["posterior"][name].values for name in START}


def assert_equal(found, expected):
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, atol=1e-11, err_msg=name)


def start():
    return jax.tree.map(jnp.asarray, START)


METRICS = {
    "rmsprop": gx.metrics.RMSProp(gamma="averaged", lag=True),
    "monge": gx.metrics.Monge(),
    "shampoo": gx.metrics.Shampoo(block_size=2, statistics_every=1, update_every=2),
    "soap": gx.metrics.Shampoo(block_size=2, statistics_every=1, update_every=2, variant="soap"),
}


BLOCKS = {"shampoo": {}, "newton": {"method": "newton"}, "soap": {"variant": "soap"}}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["rmsprop", slow("monge"), slow("shampoo"), slow("soap")])
def test_a_split_position_has_the_draws_of_a_whole_one(key, name):
    """Catches a gradient summed twice or not at all, a bias (which is whole) scaled by the devices, other noise."""
    algorithm = gx.sgrld(posterior(), metric=METRICS[name], step_size=1e-3)
    one = draws(key, algorithm, start(), jax.devices()[:1])
    mesh = gx.device_mesh(chain=1, model=2)
    assert_equal(draws(key, algorithm, gx.shard(start(), mesh)), one)


@pytest.mark.thorough
def test_exact_samplers_and_functions_of_a_key(key):
    """Warm-up's scales and momenta follow the position; a function's positions are split by the mesh."""
    algorithm = gx.hmc(posterior().full(jnp.asarray(DATA)), mass_matrix="diagonal", num_integration_steps=3)
    settings = {"num_warmup": 8, "num_samples": 2, "num_chains": 1, "batches": None}

    def begin(k):
        shifts = jax.random.normal(k, (3,))
        return {name: leaf + 0.1 * shift for (name, leaf), shift in zip(start().items(), shifts, strict=True)}

    one = draws(key, algorithm, begin, jax.devices()[:1], **settings)
    assert_equal(draws(key, algorithm, begin, gx.device_mesh(chain=1, model=2), **settings), one)


@pytest.mark.thorough
def test_a_run_resumes_on_another_number_of_devices(key, tmp_path):
    """Catches a checkpoint that is tied to a number of devices, and one whose damage is not found."""
    algorithm = gx.sgrld(posterior(), step_size=1e-3)
    mesh, alone, folder = gx.device_mesh(chain=1, model=2), jax.devices()[:1], tmp_path / "run"
    one = draws(key, algorithm, start(), alone)
    draws(key, algorithm, start(), mesh, num_samples=3, checkpoint=folder)
    assert_equal(draws(key, algorithm, start(), alone, checkpoint=folder), one)
    draws(key, algorithm, start(), mesh, num_samples=7, checkpoint=folder)
    for file in (folder / "steps").rglob("d/*"):
        file.write_bytes(file.read_bytes()[:-9] + bytes(9))
    with pytest.raises(CheckpointError, match=r"No checkpoint in .* can be read"):
        draws(key, algorithm, start(), mesh, num_samples=8, checkpoint=folder)


def test_the_checksum_sees_values_places_and_no_split():
    x = jnp.asarray(GENERATOR.normal(size=(4, 6)))
    mesh = gx.device_mesh(chain=1, model=2)
    for spec in (PartitionSpec("model"), PartitionSpec(None, "model")):
        np.testing.assert_array_equal(content_of(jax.device_put(x, NamedSharding(mesh, spec))), content_of(x))
    for other in (x.at[2, 3].add(1e-15), x.at[jnp.array([0, 1])].set(x[jnp.array([1, 0])]), x.reshape(6, 4).T):
        assert np.any(np.asarray(content_of(other)) != np.asarray(content_of(x)))


@pytest.mark.thorough
def test_a_fit_of_split_parameters(key):
    """Catches other weights for each example, and an optimiser's state that is whole."""
    layer = nn.WHVILinear(4, 3, key=jax.random.clone(key), dtype=jnp.float64)
    network = nn.WithNoise(layer, 0.0, dtype=jnp.float64)

    def fitted(devices):
        fit = vi.fit(
            jax.random.clone(key),
            network,
            nn.GaussianLikelihood(),
            (DATA, DATA[:, :3]),
            num_steps=4,
            batch_size=8,
            devices=devices,
            progress=False,
        )
        return jax.tree.leaves(eqx.filter(fit.network, eqx.is_inexact_array)), fit.history.elbo

    (one, bound), (two, of_two) = fitted(None), fitted(gx.device_mesh(chain=1, model=2))
    for x, y in zip(one, two, strict=True):
        np.testing.assert_allclose(np.asarray(y), np.asarray(x), rtol=1e-10, atol=1e-12)
        assert x.size % 2 or not y.sharding.is_fully_replicated, x.shape
    np.testing.assert_allclose(of_two, bound, rtol=1e-10)


def test_rules():
    mesh = gx.device_mesh(chain=1, model=2)
    specs = lambda tree: {name: leaf.sharding.spec for name, leaf in tree.items()}  # noqa: E731
    assert specs(gx.shard(start(), mesh)) == {
        "w": PartitionSpec(None, "model"),
        "v": PartitionSpec("model"),
        "b": PartitionSpec(),
    }
    assert specs(gx.shard(start, mesh, {"w": ("model", None), "*": ()})) == {
        "w": PartitionSpec("model", None),
        "v": PartitionSpec(),
        "b": PartitionSpec(),
    }
    network = nn.MLP(4, 2, widths=(6,), key=jax.random.key(0), dtype=jnp.float32)
    for split in (gx.shard(network, mesh), gx.shard(lambda: network, mesh)):
        assert jax.tree.structure(split) == jax.tree.structure(network)
        assert sum(not x.sharding.is_fully_replicated for x in jax.tree.leaves(split) if isinstance(x, jax.Array)) > 2
    by_shape = gx.shard(start(), mesh, lambda path, shape: ("model",) if path == "w" and shape == (4, 8) else None)
    assert specs(by_shape)["w"] == PartitionSpec("model")


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"x": ()}, "the pattern 'x' of the rules matches none of"),
        ({"b": ("model",)}, "axis 0 of b, of length 3, cannot be shared out evenly among 2 devices"),
        ({"w": ("data",)}, "w is split over the axis 'data', which divides batches"),
        ({"w": (None, None, "model")}, "its rule names 3 axes"),
    ],
)
def test_rules_that_do_not_fit_are_refused(rules, message):
    with pytest.raises(ValueError, match=message):
        gx.shard(start(), gx.device_mesh(chain=1, model=2), rules)


def test_positions_and_meshes_that_do_not_fit_are_refused(key):
    algorithm = gx.sgrld(posterior(), step_size=1e-3)
    split = gx.shard(start(), gx.device_mesh(chain=1, model=2))
    by_data = NamedSharding(gx.device_mesh(chain=1, data=2), PartitionSpec("data"))
    two = Mesh(np.asarray(jax.devices()[:2]), ("x",))
    for position, settings, message in (
        (start(), {"devices": gx.device_mesh(model=2), "batches": gx.data.batches(DATA, batch_size=7)}, "batch of 7"),
        (split, {"devices": jax.devices()[:1]}, r"split over the devices \[0, 1\], but devices= has \[0\]"),
        (split | {"w": jax.device_put(split["w"], by_data)}, {}, "all arrays of the position need one mesh"),
        (jax.device_put(start() | {"b": jnp.zeros(4)}, by_data), {}, "b is split over the axis 'data'"),
        (start(), {"devices": two}, 'needs the axes "chain", "data" or "model"'),
    ):
        with pytest.raises(ValueError, match=message):
            draws(key, algorithm, position, **settings)
    with pytest.raises(ValueError, match=r"the mesh has only \['chain', 'data'\]"):
        gx.shard(start(), gx.device_mesh(chain=2))
    with pytest.raises(ValueError, match="2 devices cannot be shared out evenly among groups of data=1 times model=3"):
        gx.device_mesh(model=3)
    with pytest.raises(StartError, match="w is not finite at the start of chain 0"):
        draws(key, algorithm, split | {"w": split["w"] * jnp.nan})


@pytest.mark.thorough
def test_a_position_keeps_a_mesh_with_other_names(key):
    mesh = Mesh(np.asarray(jax.devices()[:2]), ("x",))
    algorithm = gx.sgrld(posterior(), step_size=1e-3)
    position = start() | {"w": jax.device_put(START["w"], NamedSharding(mesh, PartitionSpec("x")))}
    assert_equal(draws(key, algorithm, position), draws(key, algorithm, start(), jax.devices()[:1]))


COLLECTIVE = re.compile(
    r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(.*?op_name=\"([^\"]*)\""
)


def compiled(algorithm, position, mesh, batch_size=8):
    """The program of a chunk of iterations of one chain, and the shapes of its state."""
    mesh = as_mesh("test", 1, mesh, batch_size)
    split = split_of("test", position, mesh, False)
    feed = make_feed(gx.data.batches(np.zeros((batch_size, 64)), batch_size=batch_size), 1)

    advance = build_advance(
        lambda arrays: (bound(algorithm, arrays).step, None, lambda p: p["0"][0, 0]),
        feed=feed,
        num_warmup=0,
        thinning=1,
        buffer_length=1,
        mesh=mesh,
        split=split,
    )

    states = jax.eval_shape(lambda p: jax.vmap(algorithm.init)(jax.tree.map(lambda x: x[None], p)), position)
    places = split.shardings(states, "chain")
    shapes = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), states, places)
    everywhere = NamedSharding(mesh, PartitionSpec())
    fed = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere), feed.load(0, 0))
    keys = jax.device_put(jax.random.split(jax.random.key(0), 1), NamedSharding(mesh, PartitionSpec("chain")))
    number = jax.ShapeDtypeStruct((), np.int32)
    arrays = split.placed(algorithm.description.arrays)
    lowered = jax.jit(advance, donate_argnums=(1, 2)).lower(arrays, shapes, (), keys, fed, number, number)
    return lowered.compile(), shapes, fed


GATHERED = ["rmsprop", "shampoo", "control variates", slow("identity"), slow("monge"), slow("newton"), slow("soap")]


@pytest.mark.thorough
@pytest.mark.parametrize("name", GATHERED)
def test_parameters_are_gathered_by_the_likelihood_alone(name):
    """Every collective of the size of an array belongs to the likelihood: a gather, or the scatter of its gradient.

    Arrays are gathered again in the backward pass, but for the first, whose inputs need no gradient. XLA merged both
    gathers on CPUs up to JAX 0.10.
    """

    def through(p, x):
        for layer in sorted(p):
            x = jnp.tanh(x @ p[layer])
        return -jnp.sum(x**2, axis=-1)

    others = {name: {"block_size": 16, **more} for name, more in BLOCKS.items()}
    metric = {"identity": gx.metrics.Identity()} | METRICS | {n: gx.metrics.Shampoo(**o) for n, o in others.items()}
    target = gx.Posterior(log_prior=lambda p: -jnp.sum(p["0"] ** 2), log_likelihood=through, num_data=64)
    position = {str(i): jnp.ones((64, 64)) for i in range(3)}
    if is_controlled := name == "control variates":
        target = control_variates(target, position, np.zeros((64, 64)))
    # of the centre too, or of a direction that the Hessian multiplies
    num_trees = 2 if is_controlled or metric[name].needs_curvature else 1
    algorithm = gx.sgrld(target, metric=metric.get(name), step_size=1e-6)
    program, shapes, fed = compiled(algorithm, position, gx.device_mesh(chain=1, model=2))
    large = []
    for kind, where in ((k, op) for shape, k, op in COLLECTIVE.findall(program.as_text()) if largest(shape) >= 2048):
        large.append(kind)
        assert (kind, "shard_map" in where) in {("all-gather", True), ("reduce-scatter", True)}, (kind, where)
    assert {"all-gather", "reduce-scatter"} == set(large)
    assert large.count("all-gather") <= num_trees * (2 * len(position) - 1)  # none of a metric, or of a slope
    beside = (position, position) if is_controlled else ()  # centre and slope, which are arguments, not constants
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves((shapes, beside)))
    held = program.memory_analysis().argument_size_in_bytes - sum(
        x.size * x.dtype.itemsize for x in jax.tree.leaves(fed)
    )
    assert 0.9 * size / 2 < held < 1.1 * size / 2
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes))
    assert program.memory_analysis().alias_size_in_bytes > 0.9 * size / 2  # what a chunk makes takes the place of it


def largest(shapes: str) -> int:
    return max(int(np.prod([int(n) for n in dims.split(",") if n])) for dims in re.findall(r"\[([\d,]*)\]", shapes))


SCRIPT = textwrap.dedent(
    """
    import sys, tempfile
    import jax, jax.numpy as jnp, numpy as np
    jax.config.update("jax_enable_x64", True)
    import geodax as gx
    from geodax.sgmcmc.control_variates import control_variates
    from tests.run.test_split import METRICS, DATA

    rng = np.random.default_rng(1)
    start = {"w": jnp.asarray(0.3 * rng.normal(size=(4, 16))), "v": jnp.asarray(0.3 * rng.normal(size=(16, 3))),
             "b": jnp.zeros(3)}
    posterior = gx.Posterior(
        log_prior=lambda p: -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(p)),
        log_likelihood=lambda p, x: -0.5 * jnp.sum((jnp.tanh(x @ p["w"]) @ p["v"] + p["b"][None] - x[:, :3]) ** 2, axis=-1),
        num_data=64,
    )
    metrics = METRICS | {"identity": None, "wenzel": gx.metrics.Wenzel()}
    cases = {n: (gx.sgrld(posterior, metric=m, step_size=1e-3), {}) for n, m in metrics.items()}
    center = jax.tree.map(lambda x: 0.9 * x, start)
    controlled = control_variates(posterior, center, DATA, chunk_size=16)
    cases["control variates"] = (gx.sgrld(controlled, step_size=1e-3), {})
    cases["sghmc"] = (gx.sghmc(posterior, metric=gx.metrics.RMSProp()), {"num_warmup": 12})
    exact = posterior.full(jnp.asarray(DATA))
    cases["hmc"] = (gx.hmc(exact, step_size=0.01, num_integration_steps=3), {"batches": None})
    cases["nuts"] = (gx.nuts(exact, mass_matrix="diagonal"), {"batches": None, "num_warmup": 6, "num_samples": 2})

    def draws(algorithm, mesh, settings, folder=None):
        chain, data, model = mesh
        mesh = gx.device_mesh(chain=chain, data=data, model=model, devices=jax.devices()[: chain * data * model])
        position = gx.shard(start, mesh) if model > 1 else start
        settings = {"batches": gx.data.batches(DATA, batch_size=16), "num_samples": 5} | settings
        tree = gx.sample(jax.random.key(1), algorithm, position, num_chains=2, devices=mesh, progress=False,
                         checkpoint=folder, **settings)
        return np.concatenate([tree["posterior"][name].values.ravel() for name in start])

    for name in sys.argv[1:] or cases:
        algorithm, settings = cases[name]
        one = draws(algorithm, (1, 1, 1), settings)
        meshes = [(1, 1, 8), (2, 2, 2), (1, 2, 4), (1, 1, 2)] if settings.get("batches", 1) else [(1, 1, 8), (2, 1, 4)]
        for mesh in meshes if len(sys.argv) < 2 else meshes[:2]:
            np.testing.assert_allclose(draws(algorithm, mesh, settings), one, rtol=1e-5, atol=1e-9,
                                       err_msg=f"{name} on {mesh}")
        with tempfile.TemporaryDirectory() as folder:
            some = settings | {"num_samples": 1}
            draws(algorithm, meshes[0], some, folder)
            found = draws(algorithm, meshes[1], settings, folder)
        np.testing.assert_allclose(found, one, rtol=1e-5, atol=1e-9, err_msg=f"{name} resumed")
        print(name, flush=True)
    print("finished")
    """
)


@pytest.mark.slow
def test_eight_devices():
    """Two samplers on 8 x parameters and on chain x data x model, interrupted on the first and resumed on the second."""
    on_eight_devices("import sys; sys.argv[1:] = ['rmsprop', 'control variates']\n" + SCRIPT, 600)


@pytest.mark.slow
def test_every_sampler_on_eight_devices():
    on_eight_devices(SCRIPT, 6000)


@pytest.mark.slow
def test_two_processes_with_four_devices_each(tmp_path):
    """Catches an array that one process asks another for, and checkpoints or draws of one process's shards alone."""

    def run(num_processes: int, folder: str, num_samples: int) -> list[np.ndarray]:
        port, flags = free_port(), f"--xla_force_host_platform_device_count={8 // num_processes}"
        command = [sys.executable, str(ROOT / "tests" / "run" / "split_hosts_script.py")]
        processes = [
            subprocess.Popen(
                [*command, str(i), str(num_processes), str(port), str(tmp_path / folder), str(num_samples)],
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)},
            )
            for i in range(num_processes)
        ]
        for process in processes:
            _, err = process.communicate(timeout=600)
            assert process.returncode == 0, err
        return [np.load(f"{tmp_path / folder}.{num_processes}.{i}.npy") for i in range(num_processes)]

    (alone,) = run(1, "alone", 6)
    run(2, "two", 3)
    for found in run(2, "two", 6):  # resumed on another mesh
        np.testing.assert_allclose(found, alone, rtol=1e-5)
    run(2, "back", 3)
    np.testing.assert_allclose(run(1, "back", 6)[0], alone, rtol=1e-5)
    (alone,) = run(1, "one.draws", 6)
    run(2, "two.draws", 3)
    for found in run(2, "two.draws", 6):
        np.testing.assert_allclose(found, alone, rtol=1e-5)
