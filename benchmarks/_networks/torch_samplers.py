"""Peers in PyTorch: gradient descent, posteriors, geoopt, and Shampoo and SOAP of pytorch_optimizer.

Weights are tensors of their own and the network is a function of them, without modules, which is the fastest form.
"""

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

from . import problem
from .problem import LEARNING_RATE, NUM_DATA, STEP_SIZE, Block, OneChainError, Run


@functools.cache
def _torch():
    import torch

    warnings.filterwarnings("ignore", category=FutureWarning)  # of the peers, at their own dependencies
    torch.set_num_threads(1)
    x, y = problem.data()
    return torch, torch.as_tensor(x), torch.as_tensor(y).long()


def log_posterior(params: dict, batch: tuple) -> Any:
    """Divided by the number of examples, as is the custom there."""
    torch, *_ = _torch()
    (x, y), last = batch, len(params) // 2 - 1
    for i in range(last):
        x = torch.relu(torch.addmm(params[f"b{i}"], x, params[f"w{i}"]))
    x = torch.addmm(params[f"b{last}"], x, params[f"w{last}"])
    log_prior = -0.5 * sum((value**2).sum() for value in params.values())
    return -torch.nn.functional.cross_entropy(x, y) + log_prior / NUM_DATA


def _start(widths=problem.WIDTHS, num_orthogonal: int = 0) -> dict:
    torch, *_ = _torch()
    layers = problem.start(widths, num_orthogonal)
    return {f"{name}{i}": torch.as_tensor(layer[name]) for i, layer in enumerate(layers) for name in "wb"}


def value_at_start() -> float:
    """That of :func:`jax_samplers.value_at_start`, which must be the same."""
    _, x, y = _torch()
    return float(log_posterior(_start(), (x[: problem.BATCH], y[: problem.BATCH])))


def _loop(block: Block, step: Callable[[tuple], Any]) -> Run:
    torch, x, y = _torch()
    if block.num_chains > 1:
        raise OneChainError

    def run(seed: int) -> None:
        torch.manual_seed(seed)
        for _ in range(block.num_steps):
            rows = torch.randint(NUM_DATA, (problem.BATCH,))
            step((x[rows], y[rows]))

    return run


def _optimized(block: Block, optimizer_of: Callable[[list], Any]) -> Run:
    params = {name: value.requires_grad_() for name, value in _start().items()}
    optimizer = optimizer_of(list(params.values()))

    def step(batch):
        optimizer.zero_grad()
        (-log_posterior(params, batch)).backward()
        optimizer.step()

    return _loop(block, step)


def descent(block: Block) -> Run:
    torch, *_ = _torch()
    return _optimized(block, lambda params: torch.optim.SGD(params, lr=LEARNING_RATE))


def shampoo(block: Block, is_blocked: bool) -> Run:
    """``ScalableShampoo`` in blocks, or ``Shampoo`` with whole matrices; statistics and roots as often as ours."""
    import pytorch_optimizer

    if not is_blocked:
        every = problem.SHAMPOO_EVERY
        return _optimized(
            block, lambda p: pytorch_optimizer.Shampoo(p, lr=LEARNING_RATE, preconditioning_compute_steps=every)
        )
    return _optimized(
        block,
        lambda p: pytorch_optimizer.ScalableShampoo(
            p,
            lr=LEARNING_RATE,
            block_size=problem.SHAMPOO_BLOCK,
            start_preconditioning_step=1,
            preconditioning_compute_steps=problem.SHAMPOO_EVERY,
            statistics_compute_steps=problem.STATISTICS_EVERY,
        ),
    )


def soap(block: Block) -> Run:
    """Whole matrices; it has no blocks."""
    import pytorch_optimizer

    every = problem.SHAMPOO_EVERY
    return _optimized(
        block, lambda p: pytorch_optimizer.SOAP(p, lr=LEARNING_RATE, weight_decay=0.0, precondition_frequency=every)
    )


def posteriors_sampler(block: Block, name: str) -> Run:
    """``sgld`` or ``sghmc`` of posteriors, in place."""
    import posteriors

    build = getattr(posteriors.sgmcmc, name).build
    rate = LEARNING_RATE if name == "sgld" else math.sqrt(LEARNING_RATE)
    transform = build(lambda params, batch: (log_posterior(params, batch), ()), lr=rate, temperature=1 / NUM_DATA)
    carried = [transform.init(_start())]

    def step(batch):
        carried[0], _ = transform.update(carried[0], batch, inplace=True)

    return _loop(block, step)


def geoopt_sampler(block: Block, name: str) -> Run:
    """``RSGLD`` or ``SGRHMC`` of geoopt, two layers on its Stiefel manifold; a step is a gradient in both."""
    import geoopt

    manifold = geoopt.Stiefel()
    params = {}
    for key, value in _start(problem.ORTHOGONAL_WIDTHS, 2).items():
        on = manifold if key in ("w0", "w1") else geoopt.Euclidean()
        params[key] = geoopt.ManifoldParameter(value, manifold=on)
    more = {"n_steps": 0} if name == "SGRHMC" else {}  # it takes n_steps + 1 gradients
    epsilon = STEP_SIZE if name == "RSGLD" else math.sqrt(STEP_SIZE)
    sampler = getattr(geoopt.samplers, name)(list(params.values()), epsilon=epsilon, **more)
    sampler.burnin = True  # which only spares it keeping log densities
    return _loop(block, lambda batch: sampler.step(lambda: NUM_DATA * log_posterior(params, batch)))
