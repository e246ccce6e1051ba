"""An exact sampler on data that are shared out among all devices: logistic regression by NUTS.

Arrays that a log density closes over are constants of the compiled program, which every device has in full, unless JAX
is told to make arguments of them; so the environment variable is part of the command.

    export XLA_FLAGS=--xla_force_host_platform_device_count=8  # eight devices of a CPU, to try it out
    JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS=1 python examples/data_on_devices.py [--num-samples 500]
"""

import argparse
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import geodax as gx


def main(num_samples):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(20_000, 5)).astype(np.float32)
    truth = np.linspace(-1.0, 1.0, 5, dtype=np.float32)
    y = (x @ truth > generator.logistic(size=len(x))).astype(np.float32)

    mesh = gx.device_mesh(chain=1, data=jax.device_count())
    data = jax.device_put((x, y), NamedSharding(mesh, PartitionSpec("data")))  # 1 / jax.device_count() of them on each

    posterior = gx.Posterior(
        log_prior=lambda w: -0.5 * jnp.sum(w**2),
        log_likelihood=lambda w, batch: jax.nn.log_sigmoid((2.0 * batch[1] - 1.0) * (batch[0] @ w)),
        num_data=len(x),
    )
    logdensity = posterior.full(data)
    start = jnp.zeros(5, jnp.float32)
    run = gx.sample(jax.random.key(0), gx.nuts(logdensity), start, num_samples=num_samples, num_warmup=500, devices=1)
    draws = run["posterior"]["position"].values
    print("mean:", draws.mean(axis=(0, 1)).round(3), "truth:", truth)

    gradient = jax.jit(jax.value_and_grad(logdensity)).lower(start).compile()
    print("all-reduces of a gradient:", len(re.findall(r" all-reduce\(", gradient.as_text())))
    print("rows on a device:", data[0].addressable_shards[0].data.shape[0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-samples", type=int, default=500)
    main(parser.parse_args().num_samples)
