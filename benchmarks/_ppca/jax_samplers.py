"""Chains of NumPyro's NUTS and of our samplers on the model, warmed up by their own rules.

NUTS chains run one after the other, since side by side all wait for the longest trajectory; HMC chains of adapted length run side by
side and are tuned together. Times are of the processor.
"""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.infer import NUTS
from numpyro.infer.util import initialize_model, unconstrain_fn

import geodax as gx
from geodax.interop import numpyro as gxn

from .model import Problem, model, seen, starts


class Block(NamedTuple):
    """Draws of all chains.

    Attributes:
        values: (chain, draw, number).
        seconds: Processor time, None if unknown.
        gradients: Of all chains together.
        divergences: Of all chains together.
    """

    values: np.ndarray
    seconds: float
    gradients: int
    divergences: int


def clocked(function, *arguments):
    """Result, seconds to compile, seconds to run."""
    started = time.process_time()
    program = jax.jit(function).lower(*arguments).compile()
    middle = time.process_time()
    result = jax.block_until_ready(program(*arguments))
    return result, middle - started, time.process_time() - middle


class JaxChains:
    """Chains that go on block by block.

    Args:
        step: From a key and the state of a chain to the next state.
        observe: From a state to (values, gradients, whether it diverged).
        states: Warmed-up states, with a leading chain axis.
        is_together: Whether chains run side by side.
    """

    def __init__(self, step, observe, states, *, is_together: bool, num_draws: int, warmup_seconds, compile_seconds):
        self.num_chains = len(jax.tree.leaves(states)[0])

        def run(key, state):
            def iterate(state, key):
                state = step(key, state)
                return state, observe(state)

            return jax.lax.scan(iterate, state, jax.random.split(key, num_draws))

        def run_all(keys, states):
            return jax.vmap(run)(keys, states) if is_together else jax.lax.map(lambda a: run(*a), (keys, states))

        started = time.process_time()
        self._run = jax.jit(run_all).lower(jax.random.split(jax.random.key(0), self.num_chains), states).compile()
        self.compile_seconds = compile_seconds + time.process_time() - started
        self.warmup_seconds, self._states = warmup_seconds, states

    def draw(self, seed: int) -> Block:
        keys = jax.random.split(jax.random.key(seed), self.num_chains)
        started = time.process_time()
        self._states, found = jax.block_until_ready(self._run(keys, self._states))
        seconds = time.process_time() - started
        values, gradients, divergent = map(np.asarray, found)
        return Block(values, seconds, int(gradients.sum()), int(divergent.sum()))


def numpyro_nuts(problem: Problem, form: str, options, *, chart=None, reparam=None, is_together: bool = False):
    """NumPyro's NUTS in coordinates."""
    written = model(problem, form, chart)
    if reparam is not None:
        written = numpyro.handlers.reparam(written, config={"w": reparam})
    info = initialize_model(jax.random.key(1), written)
    kernel = NUTS(potential_fn=info.potential_fn)
    num_chains = options.many if is_together else options.chains
    positions = [
        _unconstrained(written, reparam, problem, values, info.param_info.z) for values in starts(problem, num_chains)
    ]
    keys = jax.random.split(jax.random.key(2), num_chains)
    started = time.process_time()
    states = [kernel.init(k, options.warmup, z) for k, z in zip(keys, positions, strict=True)]
    states = jax.block_until_ready(jax.tree.map(lambda *leaves: jnp.stack(leaves), *states))
    init_seconds = time.process_time() - started

    def warm_up(state):
        return jax.lax.fori_loop(0, options.warmup, lambda _, s: kernel.sample(s, (), {}), state)

    def warm_up_all(states):
        return jax.vmap(warm_up)(states) if is_together else jax.lax.map(warm_up, states)

    states, compile_seconds, seconds = clocked(warm_up_all, states)
    return JaxChains(
        lambda key, state: kernel.sample(state._replace(rng_key=key), (), {}),
        lambda state: (seen(info.postprocess_fn(state.z)), state.num_steps, state.diverging),
        states,
        is_together=is_together,
        num_draws=options.draws,
        warmup_seconds=seconds,
        compile_seconds=init_seconds + compile_seconds,
    )


def on_the_manifold(problem: Problem, form: str, options, *, sampler: str):
    """Our samplers with W on the manifold."""
    translated = gxn.to_geodax(model(problem, form), rng_key=1)
    positions = [
        {name: values["w"] if name == "w" else jnp.log(values[name]) for name in translated.position}
        for values in starts(problem, options.many if sampler == "hmc" else options.chains)
    ]
    return _ours(sampler, translated.log_density, translated.manifold, positions, translated.constrain, options)


def in_a_chart(problem: Problem, form: str, options, *, sampler: str, chart=None):
    """Our samplers on NumPyro's density in the coordinates of a chart."""
    written = model(problem, form, chart)
    info = initialize_model(jax.random.key(1), written)
    num_chains = options.many if sampler == "hmc" else options.chains
    positions = [unconstrain_fn(written, (), {}, values) for values in starts(problem, num_chains)]
    return _ours(sampler, lambda z: -info.potential_fn(z), None, positions, info.postprocess_fn, options)


def _unconstrained(written, reparam, problem, values, like):
    """Coordinates of a start; the redundant parametrisations begin at the matrix itself, as long as a normal one."""
    if reparam is None:
        return unconstrain_fn(written, (), {}, values)
    (name,) = (name for name in like if name not in values)
    transform = (gx.transforms.Polar if "polar" in name else gx.transforms.Householder)(problem.n, problem.p)
    return {
        k: transform.inverse(values["w"]).reshape(x.shape) if k == name else jnp.log(values[k]) for k, x in like.items()
    }


def _ours(sampler: str, log_density, manifold, positions, constrain, options) -> JaxChains:
    algorithm = getattr(gx, sampler)(log_density, manifold=manifold)
    is_together = sampler == "hmc"
    num_warmup = options.warmup
    adaptation = (algorithm.adapt_jointly if is_together else algorithm.adapt)(num_warmup)
    starting = jax.tree.map(lambda *leaves: jnp.stack(leaves), *positions)
    num_chains = len(positions)

    def together(key, positions):
        def iterate(carry, i):
            (states, _), adapted = carry
            keys = jax.random.split(jax.random.fold_in(key, i), 2 * num_chains)
            states, infos = jax.vmap(algorithm.step)(keys[:num_chains], states)
            adapted, states = adaptation.update(keys[num_chains:], adapted, states, infos, i)
            return ((states, infos), adapted), None

        states = adaptation.begin(jax.vmap(algorithm.init)(positions))
        infos = jax.vmap(algorithm.step)(jax.random.split(key, num_chains), states)[1]
        return jax.lax.scan(iterate, ((states, infos), adaptation.init(states)), jnp.arange(num_warmup))[0][0]

    def alone(key, position):
        def iterate(carry, i):
            (state, _), adapted = carry
            state, info = algorithm.step(jax.random.fold_in(key, 2 * i), state)
            adapted, state = adaptation.update(jax.random.fold_in(key, 2 * i + 1), adapted, state, info, i)
            return ((state, info), adapted), None

        state = adaptation.begin(algorithm.init(position))
        info = algorithm.step(key, state)[1]
        return jax.lax.scan(iterate, ((state, info), adaptation.init(state)), jnp.arange(num_warmup))[0][0]

    def one_after_the_other(key, positions):
        return jax.lax.map(lambda a: alone(*a), (jax.random.split(key, num_chains), positions))

    warm_up = together if is_together else one_after_the_other
    states, compile_seconds, seconds = clocked(warm_up, jax.random.key(2), starting)
    return JaxChains(
        lambda key, pair: algorithm.step(key, pair[0]),
        lambda pair: (seen(constrain(pair[0].position)), pair[1].num_integration_steps, pair[1].is_divergent),
        states,
        is_together=is_together,
        num_draws=options.draws,
        warmup_seconds=seconds,
        compile_seconds=compile_seconds,
    )
