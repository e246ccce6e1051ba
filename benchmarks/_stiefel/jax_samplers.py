"""Samplers in JAX: ours on the manifold, BlackJAX's and NumPyro's on an unconstrained matrix whose polar factor is X.

Each builder warms a chain up by the sampler's own rules for 500 iterations and compiles the sampling of a block of draws.
"""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from _polar import polar

import geodax as gx

from .chain import AbstractChain, Draws
from .target import Target


class JaxChain(AbstractChain):
    """A warmed-up chain of a kernel ``step(key, state) -> (state, info)``."""

    def __init__(self, step, state, observe, num_draws: int, *, warmup_seconds: float, compile_seconds: float):
        def run(key, state):
            def iterate(state, key):
                state, info = step(key, state)
                return state, observe(state, info)

            return jax.lax.scan(iterate, state, jax.random.split(key, num_draws))

        started = time.perf_counter()
        self._run = jax.jit(run).lower(jax.random.key(0), state).compile()
        self.compile_seconds = compile_seconds + time.perf_counter() - started
        self.warmup_seconds = warmup_seconds
        self._state = state

    def draw(self, seed: int) -> Draws:
        started = time.perf_counter()
        self._state, (x, num_gradients) = jax.block_until_ready(self._run(jax.random.key(seed), self._state))
        seconds = time.perf_counter() - started
        return Draws(np.asarray(x), int(num_gradients.sum()), seconds)


def compiled(function, *arguments):
    """The result of a function, the seconds it took to compile and to run."""
    started = time.perf_counter()
    program = jax.jit(function).lower(*arguments).compile()
    middle = time.perf_counter()
    result = jax.block_until_ready(program(*arguments))
    return result, middle - started, time.perf_counter() - middle


def geodax_chain(target: Target, num_draws: int, num_warmup: int, **options) -> JaxChain:
    """Our NUTS on the manifold itself."""
    manifold = gx.Stiefel(**{k: options.pop(k) for k in ("metric", "flow") if k in options})
    algorithm = gx.nuts(target.logdensity, manifold=manifold, **options)
    adaptation = algorithm.adapt(num_warmup)

    def warm_up(key, x):
        def iterate(carry, i):
            state, adapted = carry
            state, info = algorithm.step(jax.random.fold_in(key, 2 * i), state)
            adapted, state = adaptation.update(jax.random.fold_in(key, 2 * i + 1), adapted, state, info, i)
            return (state, adapted), None

        state = adaptation.begin(algorithm.init(x))
        return jax.lax.scan(iterate, (state, adaptation.init(state)), jnp.arange(num_warmup))[0][0]

    start = manifold.random_point(jax.random.key(1), jnp.zeros(target.shape))
    state, compile_seconds, seconds = compiled(warm_up, jax.random.key(2), start)
    return JaxChain(
        algorithm.step,
        state,
        lambda s, i: (s.position, i.num_integration_steps),
        num_draws,
        warmup_seconds=seconds,
        compile_seconds=compile_seconds,
    )


def geodax_hmc_chain(
    target: Target, num_draws: int, num_warmup: int, num_chains: int = 16, make: Callable = gx.hmc
) -> JaxChain:
    """One chain of our HMC with the length that the warm-up of chains side by side found; all of their time is counted."""
    manifold = gx.Stiefel()
    algorithm = make(target.logdensity, manifold=manifold)
    adaptation = algorithm.adapt_jointly(num_warmup)

    def warm_up(key, x):
        def iterate(carry, i):
            states, adapted = carry
            keys = jax.random.split(jax.random.fold_in(key, i), 2 * num_chains)
            states, infos = jax.vmap(algorithm.step)(keys[:num_chains], states)
            adapted, states = adaptation.update(keys[num_chains:], adapted, states, infos, i)
            return (states, adapted), None

        states = adaptation.begin(jax.vmap(algorithm.init)(x))
        states = jax.lax.scan(iterate, (states, adaptation.init(states)), jnp.arange(num_warmup))[0][0]
        return jax.tree.map(lambda a: a[0], states)

    starts = manifold.random_point(jax.random.key(1), jnp.zeros((num_chains, *target.shape)))
    state, compile_seconds, seconds = compiled(warm_up, jax.random.key(2), starts)
    return JaxChain(
        algorithm.step,
        state,
        lambda s, i: (s.position, i.num_integration_steps),
        num_draws,
        warmup_seconds=seconds,
        compile_seconds=compile_seconds,
    )


def blackjax_chain(target: Target, num_draws: int, num_warmup: int) -> JaxChain:
    """BlackJAX's NUTS with its window adaptation."""
    import blackjax

    def unconstrained(z):
        return target.logdensity(polar(z)) - 0.5 * jnp.sum(z * z)

    def warm_up(key, z):
        warmup = blackjax.window_adaptation(blackjax.nuts, unconstrained)
        return warmup.run(key, z, num_steps=num_warmup)[0]

    start = jax.random.normal(jax.random.key(1), target.shape)
    (state, parameters), compile_seconds, seconds = compiled(warm_up, jax.random.key(2), start)
    algorithm = blackjax.nuts(unconstrained, **parameters)
    return JaxChain(
        algorithm.step,
        state,
        lambda s, i: (polar(s.position), i.num_integration_steps),
        num_draws,
        warmup_seconds=seconds,
        compile_seconds=compile_seconds,
    )


def numpyro_chain(target: Target, num_draws: int, num_warmup: int) -> JaxChain:
    """NumPyro's NUTS with its own warm-up; its kernel is then run in the same loop as the others."""
    from numpyro.infer import NUTS

    def potential(z):
        return 0.5 * jnp.sum(z * z) - target.logdensity(polar(z))

    kernel = NUTS(potential_fn=potential)
    start = jax.random.normal(jax.random.key(1), target.shape)
    started = time.perf_counter()
    state = jax.block_until_ready(kernel.init(jax.random.key(2), num_warmup, start))  # searches a step size, eagerly
    init_seconds = time.perf_counter() - started

    def warm_up(state):
        # the kernel counts its iterations and adapts during the first `num_warmup`
        return jax.lax.fori_loop(0, num_warmup, lambda i, s: kernel.sample(s, (), {}), state)

    state, compile_seconds, seconds = compiled(warm_up, state)

    def step(key, state):
        return kernel.sample(state._replace(rng_key=key), (), {}), None

    return JaxChain(
        step,
        state,
        lambda s, _: (polar(s.z), s.num_steps),
        num_draws,
        warmup_seconds=seconds,
        compile_seconds=init_seconds + compile_seconds,
    )
