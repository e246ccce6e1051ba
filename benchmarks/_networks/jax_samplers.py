"""Gradient descent, and samplers of geodax and of its peers in JAX: each a compiled scan over steps."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from geodax.run.programs import compiler_options

from . import problem
from .problem import LEARNING_RATE, STEP_SIZE, Block, Run


def logits(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def log_likelihood(params, batch):
    return jnp.take_along_axis(jax.nn.log_softmax(logits(params, batch["x"])), batch["y"][:, None], 1)[:, 0]


def log_prior(params):
    return -0.5 * sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(params))


def posterior() -> gx.Posterior:
    return gx.Posterior(log_prior=log_prior, log_likelihood=log_likelihood, num_data=problem.NUM_DATA)


def value_at_start() -> float:
    """The log posterior divided by the number of examples, on the first rows."""
    x, y = (part[: problem.BATCH] for part in problem.data())
    return float(posterior().logdensity(start(), {"x": x, "y": y})) / problem.NUM_DATA


def compiled(step: Callable, state: Any, block: Block, *, is_like_geodax: bool = False) -> Run:
    """Steps ``(key, state, batch) -> state`` from a state, with batches drawn inside the loop; chains by ``vmap``.

    Compiled as JAX does by itself, or with the options of :func:`geodax.sample`.
    """
    x, y = map(jnp.asarray, problem.data())
    batches = gx.data.batches({"x": x, "y": y}, batch_size=problem.BATCH)

    def one(key, state, batches, i):
        key_step, key_data = jax.random.split(key)
        return step(key_step, state, batches.draw(key_data, i))

    if block.num_chains > 1:
        state = jax.tree.map(lambda leaf: jnp.stack([leaf] * block.num_chains), state)

    @jax.jit
    def run(state, batches, key):
        def body(state, i):
            key_now = jax.random.fold_in(key, i)
            if block.num_chains == 1:
                return one(key_now, state, batches, i), None
            keys = jax.random.split(key_now, block.num_chains)
            return jax.vmap(one, (0, 0, None, None))(keys, state, batches, i), None

        return jax.lax.scan(body, state, jnp.arange(block.num_steps))[0]

    options = compiler_options() if is_like_geodax else None
    program = run.lower(state, batches, jax.random.key(0)).compile(compiler_options=options)
    carried = [state]

    def go_on(seed: int) -> None:
        carried[0] = jax.block_until_ready(program(carried[0], batches, jax.random.key(seed)))

    return go_on


def start(widths=problem.WIDTHS, num_orthogonal: int = 0):
    return jax.tree.map(jnp.asarray, problem.start(widths, num_orthogonal))


def descent(block: Block, widths=problem.WIDTHS, *, is_like_geodax: bool = False) -> Run:
    """Plain gradient descent, the unit of all ratios."""
    gradient = jax.value_and_grad(posterior().logdensity)

    def step(key, state, batch):
        value, slope = gradient(state[0], batch)
        return jax.tree.map(lambda p, g: p + STEP_SIZE * g, state[0], slope), value

    return compiled(step, (start(widths), jnp.zeros(())), block, is_like_geodax=is_like_geodax)


def by_hand(block: Block) -> Run:
    """Langevin dynamics as one would write it, with JAX's own normal variates."""
    gradient = jax.value_and_grad(posterior().logdensity)

    def step(key, state, batch):
        value, slope = gradient(state[0], batch)
        leaves, structure = jax.tree.flatten(state[0])
        keys = jax.random.split(key, len(leaves))
        noise = structure.unflatten([jax.random.normal(k, p.shape) for k, p in zip(keys, leaves, strict=True)])
        scale = np.sqrt(2 * STEP_SIZE)
        return jax.tree.map(lambda p, g, z: p + STEP_SIZE * g + scale * z, state[0], slope, noise), value

    return compiled(step, (start(), jnp.zeros(())), block)


def optax_descent(block: Block, is_noisy: bool = False) -> Run:
    """``optax.sgd``, or ``optax.noisy_sgd`` with the noise of Langevin dynamics."""
    import optax

    optimizer = (
        optax.noisy_sgd(LEARNING_RATE, eta=2 / STEP_SIZE / problem.NUM_DATA**2, gamma=0.0)
        if is_noisy
        else optax.sgd(LEARNING_RATE)
    )
    return _optimised(optimizer, block)


def _optimised(optimizer: Any, block: Block) -> Run:
    import optax

    target = posterior()
    gradient = jax.value_and_grad(lambda p, b: -target.logdensity(p, b) / problem.NUM_DATA)

    def step(key, state, batch):
        params, inner, _ = state
        value, slope = gradient(params, batch)
        updates, inner = optimizer.update(slope, inner, params)
        return optax.apply_updates(params, updates), inner, value

    params = start()
    return compiled(step, (params, optimizer.init(params), jnp.zeros(())), block)


def optax_adam(block: Block) -> Run:
    import optax

    return _optimised(optax.adam(1e-3), block)


def ivon(block: Block) -> Run:
    return _fit(gx.vi.ivon(start(), log_likelihood, 0.01, num_data=problem.NUM_DATA), start(), block)


class Labelled:
    """The likelihood of classes for batches by name."""

    likelihood = gx.nn.CategoricalLikelihood()

    def __call__(self, position, batch):
        return self.likelihood(position, (batch["x"], batch["y"]))

    def sample(self, key, position, batch):
        x, y = self.likelihood.sample(key, position, (batch["x"], batch["y"]))
        return {"x": x, "y": y}


def noisy_kfac(block: Block) -> Run:
    """On a network of dense layers of the same sizes."""
    network = gx.nn.MLP(problem.WIDTHS[0], problem.WIDTHS[-1], widths=problem.WIDTHS[1:-1], key=jax.random.key(0))
    algorithm = gx.vi.noisy_kfac(network, Labelled(), 0.01, num_data=problem.NUM_DATA)
    return _fit(algorithm, network, block)


def _fit(algorithm: Any, position: Any, block: Block) -> Run:
    def step(key, state, batch):
        state, info = algorithm.step(key, state[0], batch, state[0].count)
        return state, info.elbo

    return compiled(step, (algorithm.init(position), jnp.zeros(())), block, is_like_geodax=True)


def blackjax_sgld(block: Block) -> Run:
    import blackjax

    sampler = blackjax.sgld(jax.grad(posterior().logdensity))
    return compiled(lambda key, state, batch: sampler.step(key, state, batch, STEP_SIZE), start(), block)


def blackjax_sghmc(block: Block, gradients_an_update: int) -> Run:
    """The last gradient of an update is taken where nothing depends on it any more, and is not computed."""
    import blackjax

    sampler = blackjax.sghmc(jax.grad(posterior().logdensity), num_integration_steps=gradients_an_update + 1)
    rate = float(np.sqrt(STEP_SIZE))
    return compiled(
        lambda key, state, batch: sampler.step(key, state, batch, rate),
        start(),
        block._replace(num_steps=block.num_steps // gradients_an_update),
    )


def _sampler(algorithm: Any, position: Any, block: Block) -> Run:
    def step(key, state, batch):
        state, info = algorithm.step(key, state[0], batch)
        return state, info.potential

    return compiled(step, (algorithm.init(position), jnp.zeros(())), block, is_like_geodax=True)


def sgrld(block: Block, metric: Any) -> Run:
    return _sampler(gx.sgrld(posterior(), metric=metric, step_size=STEP_SIZE), start(), block)


def sghmc(block: Block) -> Run:
    return _sampler(gx.sghmc(posterior(), step_size=float(np.sqrt(STEP_SIZE))), start(), block)


def orthogonal_sghmc(block: Block, frames: gx.Stiefel) -> Run:
    manifold = gx.Product([{"w": frames}, {"w": frames}, {"w": None, "b": None}])
    algorithm = gx.sghmc(posterior(), manifold=manifold, step_size=float(np.sqrt(STEP_SIZE)))
    return _sampler(algorithm, start(problem.ORTHOGONAL_WIDTHS, 2), block)
