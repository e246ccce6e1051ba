"""Peers that loop in Python, on the manifold: geoopt's Riemannian HMC and mici's constrained NUTS.

A repeat of theirs may be cut short: they make as many draws as fit into ``seconds``, and at least ``LEAST_DRAWS``.
"""

import math
import time

import numpy as np

from geodax.diagnostics.findings import ess

from .chain import AbstractChain, Draws
from .target import Target

LEAST_DRAWS = 100
CURVED_LENGTHS = (4, 8, 16)


def fitting(num_draws: int, seconds_per_draw: float, seconds: float) -> int:
    """How many draws fit into the time."""
    return max(min(num_draws, LEAST_DRAWS), min(num_draws, int(seconds / seconds_per_draw)))


class GeooptChain(AbstractChain):
    """``geoopt.samplers.RHMC`` on ``geoopt.Stiefel()`` (the canonical metric, its default), on the CPU.

    It has no warm-up. We give it one: for each of 4, 8 and 16 steps a trajectory the step size is steered towards an acceptance rate of
    0.8 over a third of the warm-up, and the length with the largest ESS per gradient in a pilot run is kept.
    """

    compile_seconds = 0.0

    def __init__(self, target: Target, num_draws: int, num_warmup: int, seconds: float):
        import geoopt
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(1)
        np.random.seed(1)  # RHMC draws its uniforms from NumPy's global generator
        f, b, weights = (torch.as_tensor(a) for a in target)
        manifold = geoopt.Stiefel()
        self._x = geoopt.ManifoldParameter(manifold.random(*target.shape, dtype=torch.float64), manifold=manifold)
        self._sampler = geoopt.samplers.RHMC([self._x], epsilon=0.1 / math.sqrt(target.shape[0]), n_steps=4)
        self._sampler.burnin = False  # which only makes it record acceptance probabilities
        self._torch = torch

        def logdensity():
            return torch.sum(f * self._x) + torch.sum(self._x * (b @ self._x) * weights)

        self._logdensity = logdensity
        self._num_gradients = 0
        started = time.perf_counter()
        share = max(num_warmup // 3, 1)
        trials = []
        for num_steps in CURVED_LENGTHS:
            self._sampler.n_steps = num_steps
            self._steer(share)
            before = self._num_gradients
            pilot = self._run(share)
            efficiency = _smallest_ess(pilot) / (self._num_gradients - before)
            trials.append((efficiency, num_steps, self._epsilon))
        _, self._sampler.n_steps, self._epsilon = max(trials)
        self.warmup_seconds = time.perf_counter() - started
        started = time.perf_counter()
        self._run(20)
        self._num_draws = fitting(num_draws, (time.perf_counter() - started) / 20, seconds)

    @property
    def _epsilon(self) -> float:
        return self._sampler.param_groups[0]["epsilon"]

    @_epsilon.setter
    def _epsilon(self, value: float) -> None:
        self._sampler.param_groups[0]["epsilon"] = value

    def _iterate(self) -> float:
        """One iteration; its acceptance probability, 0 where the energy overflows."""
        self._num_gradients += self._sampler.n_steps + 1
        before = self._x.detach().clone()
        try:
            self._sampler.step(self._logdensity)
        except OverflowError:
            with self._torch.no_grad():
                self._x.copy_(before)
            self._x.grad = None
            return 0.0
        return self._sampler.acceptance_probs.pop()

    def _steer(self, count: int) -> None:
        log_epsilon = math.log(self._epsilon)
        kept = []
        for i in range(count):
            log_epsilon += (self._iterate() - 0.8) * (i + 1) ** -0.5
            self._epsilon = math.exp(log_epsilon)
            kept.append(log_epsilon)
        self._epsilon = math.exp(float(np.mean(kept[count // 2 :])))
        self._sampler.log_probs.clear()

    def _run(self, count: int) -> np.ndarray:
        x = np.empty((count, *self._x.shape))
        for i in range(count):
            self._iterate()
            x[i] = self._x.detach().numpy()
        self._sampler.log_probs.clear()
        return x

    def draw(self, seed: int) -> Draws:
        self._torch.manual_seed(seed)
        np.random.seed(seed)
        self._num_gradients = 0
        started = time.perf_counter()
        x = self._run(self._num_draws)
        return Draws(x, self._num_gradients, time.perf_counter() - started)


class MiciChain(AbstractChain):
    """``mici.samplers.DynamicMultinomialHMC`` on X^T X = I, with all derivatives by hand in NumPy.

    Its constrained leapfrog projects by a symmetric quasi-Newton iteration; its dual averaging tunes the step size.
    """

    compile_seconds = 0.0

    def __init__(self, target: Target, num_draws: int, num_warmup: int, seconds: float):
        import mici

        n, p = shape = target.shape
        rows, columns = np.triu_indices(p)
        index = np.arange(len(rows))
        self._num_gradients = 0
        self._shape = shape

        def gradient(q):
            self._num_gradients += 1
            return -target.gradients(q.reshape(shape)).ravel()

        def constraint(q):
            x = q.reshape(shape)
            return (x.T @ x - np.eye(p))[rows, columns]

        def jacobian(q):
            x = q.reshape(shape)
            result = np.zeros((len(rows), n, p))
            # an entry (i, i) is |x_i|^2 - 1: its two halves add up
            result[index, :, rows] += x.T[columns]
            result[index, :, columns] += x.T[rows]
            return result.reshape(len(rows), n * p)

        system = mici.systems.DenseConstrainedEuclideanMetricSystem(
            neg_log_dens=lambda q: -float(target.values(q.reshape(shape))),
            grad_neg_log_dens=gradient,
            constr=constraint,
            jacob_constr=jacobian,
        )
        integrator = mici.integrators.ConstrainedLeapfrogIntegrator(system)
        # a sampler begins its generator anew in every call, hence one for each block of draws
        self._make = lambda seed: mici.samplers.DynamicMultinomialHMC(system, integrator, np.random.default_rng(seed))
        start = np.linalg.qr(np.random.default_rng(1).standard_normal(shape))[0].ravel()
        started = time.perf_counter()
        adapters = [mici.adapters.DualAveragingStepSizeAdapter(0.8)]
        states, _, _ = self._advance(2, num_warmup, 0, [start], adapters)
        self.warmup_seconds = time.perf_counter() - started
        started = time.perf_counter()
        self._state, _, _ = self._advance(3, 0, 20, states, [])
        self._num_draws = fitting(num_draws, (time.perf_counter() - started) / 20, seconds)

    def _advance(self, seed: int, num_warmup: int, num_draws: int, states, adapters):
        return self._make(seed).sample_chains(
            num_warmup,
            num_draws,
            states,
            adapters=adapters,
            trace_funcs=[lambda state: {"q": state.pos}],
            display_progress=False,
        )

    def draw(self, seed: int) -> Draws:
        self._num_gradients = 0
        started = time.perf_counter()
        self._state, traces, _ = self._advance(seed, 0, self._num_draws, self._state, [])
        seconds = time.perf_counter() - started
        return Draws(np.asarray(traces["q"][0]).reshape(-1, *self._shape), self._num_gradients, seconds)


def _smallest_ess(x: np.ndarray) -> float:
    return float(np.nanmin(ess(x.reshape(1, len(x), -1), method="bulk")))
