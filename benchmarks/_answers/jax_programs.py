"""Programs of geodax on the manifold, and of NumPyro and BlackJAX in an unconstrained matrix whose polar factor is the frame."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from _polar import polar

from .data import DATA

jax.config.update("jax_enable_x64", True)


class Target(NamedTuple):
    """A log density of ``{"frame": n x p, "x": vector}``, either of which may be missing, and what is observed of it."""

    logdensity: Callable[[dict], Any]
    frame: tuple[int, int] | None
    dim: int
    observe: Callable[[dict], Any]


def matrix(data: dict) -> Target:
    f, b, weights = (jnp.asarray(data[name]) for name in ("f", "b", "weights"))

    def logdensity(q):
        x = q["frame"]
        return jnp.sum(f * x) + jnp.sum(x * (b @ x) * weights)

    return Target(logdensity, f.shape, 0, lambda q: q["frame"].ravel())


def pca(data: dict) -> Target:
    n, p, rows, scatter = data["n"], data["p"], data["rows"], jnp.asarray(data["scatter"])

    def logdensity(q):
        variances, noise = jnp.exp(2 * q["x"][:p]), jnp.exp(2 * q["x"][p])
        explained = variances / (noise * (noise + variances))
        logdet = jnp.sum(jnp.log(variances + noise)) + (n - p) * jnp.log(noise)
        projected = jnp.sum(q["frame"] * (scatter @ q["frame"]), axis=0)
        quadratic = jnp.trace(scatter) / noise - jnp.sum(explained * projected)
        return -0.5 * (rows * logdet + quadratic) - 0.5 * jnp.sum(q["x"] ** 2)

    def observe(q):
        return jnp.concatenate([jnp.sum(q["frame"] ** 2 * jnp.exp(2 * q["x"][:p]), axis=1), q["x"][p:]])

    return Target(logdensity, (n, p), p + 1, observe)


def eigenmodel(data: dict) -> Target:
    nodes, first, second = data["n"], data["first"], data["second"]
    signs = jnp.asarray(2.0 * data["edges"] - 1)

    def predictor(q):
        return ((q["frame"] * q["x"][:2]) @ q["frame"].T)[first, second] + q["x"][2]

    def logdensity(q):
        likelihood = jnp.sum(jax.nn.log_sigmoid(signs * predictor(q)))
        return likelihood - 0.5 * jnp.sum(q["x"][:2] ** 2) / nodes - 0.5 * q["x"][2] ** 2 / 100

    return Target(logdensity, (nodes, 2), 3, lambda q: predictor(q)[::40])


def schools(data: dict) -> Target:
    effects, errors = jnp.asarray(data["effects"]), jnp.asarray(data["errors"])

    def logdensity(q):
        mean, log_spread, z = q["x"][0], q["x"][1], q["x"][2:]
        residual = (effects - mean - jnp.exp(log_spread) * z) / errors
        prior = -0.5 * mean**2 / 25 - jnp.log1p(jnp.exp(2 * log_spread) / 25) + log_spread - 0.5 * jnp.sum(z**2)
        return prior - 0.5 * jnp.sum(residual**2)

    return Target(logdensity, None, 2 + len(effects), lambda q: q["x"])


TARGETS = {"matrix": matrix, "pca": pca, "eigenmodel": eigenmodel, "schools": schools}


def target_of(name: str) -> Target:
    return TARGETS[name](DATA[name]())


def start_of(target: Target, key) -> dict:
    q = {"x": 0.3 * jax.random.normal(key, (target.dim,))} if target.dim else {}
    return q | ({"frame": jax.random.normal(key, target.frame)} if target.frame else {})


def with_polar_factor(target: Target):
    """The target's functions of an unconstrained matrix in place of the frame."""

    def inside(q):
        return q | {"frame": polar(q["frame"])} if target.frame else q

    def logdensity(q):
        return target.logdensity(inside(q)) - (0.5 * jnp.sum(q["frame"] ** 2) if target.frame else 0.0)

    return logdensity, lambda q: target.observe(inside(q))


def sampled(target: Target, sampler: str, seed: int, chains: int, warmup: int, draws: int):
    """Draws of what is observed, by geodax on the manifold."""
    import geodax as gx

    def start(key):
        q = start_of(target, key)
        return q | ({"frame": jnp.linalg.qr(q["frame"])[0]} if target.frame else {})

    manifold = gx.Product({"frame": gx.Stiefel()}) if target.frame else None
    tree = gx.sample(
        jax.random.key(seed),
        getattr(gx, sampler)(target.logdensity, manifold=manifold),
        start,
        keep=lambda q: {"observed": target.observe(q)},
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        progress=False,
    )
    return tree["posterior"]["observed"].values


def by_geodax(name: str, chains: int, warmup: int, draws: int):
    return sampled(target_of(name), "nuts", 0, chains, warmup, draws)


def by_numpyro(name: str, chains: int, warmup: int, draws: int):
    from numpyro.infer import MCMC, NUTS

    target = target_of(name)
    logdensity, observe = with_polar_factor(target)
    starts = jax.vmap(lambda key: start_of(target, key))(jax.random.split(jax.random.key(1), chains))
    mcmc = MCMC(
        NUTS(potential_fn=lambda q: -logdensity(q)),
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), init_params=starts)
    return jax.vmap(jax.vmap(observe))(mcmc.get_samples(group_by_chain=True))


def by_blackjax(name: str, chains: int, warmup: int, draws: int):
    import blackjax

    target = target_of(name)
    logdensity, observe = with_polar_factor(target)

    def run(key):
        keys = jax.random.split(key, 3)
        adaptation = blackjax.window_adaptation(blackjax.nuts, logdensity)
        (state, parameters), _ = adaptation.run(keys[0], start_of(target, keys[1]), num_steps=warmup)
        step = blackjax.nuts(logdensity, **parameters).step

        def iterate(state, key):
            state, _ = step(key, state)
            return state, observe(state.position)

        return jax.lax.scan(iterate, state, jax.random.split(keys[2], draws))[1]

    return jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), chains))
