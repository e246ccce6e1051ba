"""A run of one of several processes, for the tests of several hosts: process, number of them, port, folder, shards, seconds of pause."""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from geodax import vi
from geodax.run import hosts

jax.config.update("jax_enable_x64", True)

process, num_processes, port, folder, shards, pause = sys.argv[1:]
if int(num_processes) > 1:
    hosts.connect(f"127.0.0.1:{port}", int(num_processes), int(process), lost_after=10)
posterior = gx.Posterior(
    log_prior=lambda t: -0.5 * jnp.sum(t**2),
    log_likelihood=lambda t, b: -0.125 * jnp.sum((b - t) ** 2, axis=-1),
    num_data=64,
)


def report(progress):
    print(progress.iteration, flush=True)
    time.sleep(float(pause))


batches = gx.data.shards(shards, batch_size=8)
tree = gx.sample(
    jax.random.key(0),
    gx.sghmc(posterior, step_size=0.01, friction=0.1),
    lambda key: jax.random.normal(key, (3,)),
    num_samples=40,
    num_chains=2,
    batches=batches,
    devices=gx.device_mesh(chain=2, data=2),
    checkpoint=folder,
    checkpoint_seconds=0.0,
    progress=report,
)
fit = vi.fit(
    jax.random.key(1),
    vi.GaussianOver(jnp.zeros(3)),
    lambda t, b: -0.5 * jnp.sum((b - t) ** 2, axis=-1),
    batches.read(0, 8).reshape(64, 3),
    num_steps=20,
    window=10,
    batch_size=16,
    num_samples=2,
    checkpoint=f"{folder}-fit",
    devices=gx.device_mesh(chain=2, data=2),
    progress=False,
)
tuned = gx.sample(
    jax.random.key(2),
    gx.nuts(lambda x: -0.5 * jnp.sum((x / jnp.array([0.1, 1.0, 10.0])) ** 2)),
    jnp.zeros(3),
    num_warmup=30,
    num_samples=5,
    checkpoint=f"{folder}-tuned",
    devices="all",
    progress=False,
)
draws = tree["posterior"]["position"].values
np.save(
    f"{folder}.{num_processes}.{process}.npy",
    np.concatenate(
        [
            draws.ravel(),
            *(np.ravel(x) for x in jax.tree.leaves(fit.network.family)),
            *(np.ravel(tuned["adaptation"][name]) for name in sorted(tuned["adaptation"].data_vars)),
        ]
    ),
)
