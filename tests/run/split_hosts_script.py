"""A run with split parameters in one of several processes: process, number of them, port, folder, number of draws.

The draws are of functions of the position, with control variates, or with a folder that ends in "draws" of the position
itself.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from geodax.predict.evaluation import evaluate
from geodax.run import hosts
from geodax.sgmcmc.control_variates import control_variates

jax.config.update("jax_enable_x64", True)

process, num_processes, port, folder, num_samples = sys.argv[1:]
if int(num_processes) > 1:
    hosts.connect(f"127.0.0.1:{port}", int(num_processes), int(process), lost_after=100)
generator = np.random.default_rng(4)
data = generator.normal(size=(64, 4))
start = {"w": 0.3 * generator.normal(size=(4, 8)), "v": 0.3 * generator.normal(size=(8, 4)), "b": np.zeros(4)}
posterior = gx.Posterior(
    log_prior=lambda p: -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(p)),
    log_likelihood=lambda p, x: -0.5 * jnp.sum((jnp.tanh(x @ p["w"]) @ p["v"] + p["b"] - x) ** 2, axis=-1),
    num_data=len(data),
)
mesh = gx.device_mesh(chain=1, data=2, model=4)  # neighbours, so that each process has the whole parameters
if int(num_samples) > 3:
    mesh = gx.device_mesh(chain=1, data=1, model=8)  # no process has them


def few(p):
    return {"w": jnp.sum(jnp.cos(p["w"]), axis=1), "v": jnp.sum(jnp.cos(p["v"]), axis=0), "b": p["b"]}


has_positions = folder.endswith("draws")
position = gx.shard(start, mesh)
target = posterior
if not has_positions:
    target = control_variates(posterior, gx.shard({n: 0.9 * x for n, x in start.items()}, mesh), data)
tree = gx.sample(
    jax.random.key(0),
    gx.sgrld(target, metric=gx.metrics.RMSProp(), step_size=1e-3),
    position,
    num_samples=int(num_samples),
    num_chains=2,
    batches=gx.data.batches(data, batch_size=16),
    keep=None if has_positions else few,
    checkpoint=folder,
    progress=False,
)
found = [x.values.ravel() for x in tree["posterior"].values()]
if has_positions:  # every process reads its own shards of the store
    apply = lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"] + p["b"]  # noqa: E731
    for values in evaluate(f"{folder}/draws.zarr", position, data[:3], apply=apply):
        found.append(values.ravel())
elif int(num_samples) > 3:  # what warm-up learns comes to every process
    exact = gx.hmc(posterior.full(data), num_integration_steps=1)
    settings = {"num_warmup": 6, "num_samples": 1, "num_chains": 2, "keep": few, "progress": False}
    tree = gx.sample(jax.random.key(1), exact, position, **settings)
    found += [x.values.ravel() for x in tree["adaptation"].values()]
np.save(f"{folder}.{num_processes}.{process}.npy", np.concatenate(found))
