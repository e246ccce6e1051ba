"""The chunks of a variational fit: compiled units for some steps and for the end of a window, and their history."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from geodax import _tree
from geodax._types import Array, PRNGKey, PyTree, Scalar
from geodax.data.parts import DATA_AXIS, Part
from geodax.run import hosts
from geodax.run.advance import NEVER
from geodax.run.driver import Chunks, Run
from geodax.run.errors import NonFiniteError
from geodax.run.failures import usual_cause
from geodax.run.progress import Progress
from geodax.run.split import Split
from geodax.sgmcmc.gradients import looks_finite
from geodax.vi.elbo import VariationalAlgorithm, elbo

_VALIDATION_DRAWS = 8


class History(NamedTuple):
    """History of a fit, one entry per window of steps.

    Attributes:
        step: Number of steps done at the end of the window.
        elbo: Mean over the window of the estimates of the evidence lower bound, in nats for all the data; during
            divergence warm-up the divergence has a smaller weight in it.
        log_likelihood: Mean of the expected log likelihood in it.
        kl: Mean of the divergence.
        validation: Bound of the validation data at the end of the window, in nats per example: mean expected log
            likelihood minus the divergence over the number of training examples; NaN without validation data.
    """

    step: Int[np.ndarray, " windows"]
    elbo: Float[np.ndarray, " windows"]
    log_likelihood: Float[np.ndarray, " windows"]
    kl: Float[np.ndarray, " windows"]
    validation: Float[np.ndarray, " windows"]


class Keys(NamedTuple):
    """PRNG keys of batches, steps and validation."""

    batches: PRNGKey
    steps: PRNGKey
    validation: PRNGKey


class Carry(NamedTuple):
    """State that a fit carries from chunk to chunk.

    Attributes:
        sums: Bound, log likelihood and divergence, summed over the steps of the current window.
        table: One row per window: their means, and the validation bound.
        best_bound: The best validation bound.
        best_window: Index of the window with the best bound.
        failed_at: The first step after which the bound or the network was non-finite, or NEVER.
    """

    state: Any
    best: Any
    sums: Float[Array, "3"]
    table: Float[Array, "windows 4"]
    best_bound: Scalar
    best_window: Int[Array, ""]
    failed_at: Int[Array, ""]


def first_carry(network: PyTree, state: Any, num_windows: int, has_validation: bool) -> Carry:
    """The initial carry of a fit."""
    # sums over all data and many steps exceed the range of half precision
    dtype = _tree.real_dtype(_tree.widened(eqx.filter(network, eqx.is_inexact_array)))
    return Carry(
        jax.tree.map(jnp.array, state),  # donated: no array may be in it twice
        jax.tree.map(jnp.array, state) if has_validation else (),
        jnp.zeros(3, dtype),
        jnp.full((num_windows, 4), jnp.nan, dtype),
        jnp.asarray(-jnp.inf, dtype),
        jnp.zeros((), jnp.int32),
        jnp.asarray(NEVER, jnp.int32),
    )


def build(
    algorithm: VariationalAlgorithm,
    log_likelihood: Callable[[Any, PyTree], Array],
    draw: Callable[[Any, PRNGKey, Array, Array, str | None], PyTree],
    num_data: int,
    has_validation: bool,
    axes: tuple[str, ...] = (),
    split: Split | None = None,
) -> tuple[Callable[..., Carry], Callable[..., Carry]]:
    """Build the two functions that advance a fit.

    The first, ``(carry, keys, data, start, stop) -> carry``, runs the steps ``start, ..., stop - 1`` or up to the first
    failure; the second, ``(carry, keys, held_out, number, length) -> carry``, ends a window of ``length`` steps.

    ``draw`` is that of :func:`geodax.run.feeding.make_step_feed`. A step is divided over the ``axes`` of the mesh,
    its examples along ``"data"``; ``split`` tells how the arrays of the network are split over further axes.
    """

    def batch_of(data: Any, key: PRNGKey, iteration: Array, start: Array) -> Any:
        batch = draw(data, key, iteration, start, DATA_AXIS if DATA_AXIS in axes else None)
        part = Part(batch, axes) if axes else batch
        return part if split is None else split.part(part)

    def kept(state: Any) -> Any:
        return state if split is None else split.pinned_within(state, 0)

    def advance(carry: Carry, keys: Keys, data: Any, start: Array, stop: Array) -> Carry:
        def goes_on(inner: tuple[Array, Any, Array, Array]) -> Array:
            iteration, _, _, failed_at = inner
            return (iteration < stop) & (failed_at == NEVER)

        def body(inner: tuple[Array, Any, Array, Array]) -> tuple[Array, Any, Array, Array]:
            iteration, state, sums, failed_at = inner
            batch = batch_of(data, keys.batches, iteration, start)
            state, info = algorithm.step(jax.random.fold_in(keys.steps, iteration), state, batch, iteration)
            values = jnp.stack([info.elbo, info.log_likelihood, info.kl]).astype(sums.dtype)
            is_finite = jnp.isfinite(values).all() & looks_finite(_fitted_arrays(algorithm, state))
            return iteration + 1, kept(state), sums + values, jnp.where(is_finite, failed_at, iteration)

        inner = (start, carry.state, carry.sums, carry.failed_at)
        _, state, sums, failed_at = jax.lax.while_loop(goes_on, body, inner)
        return carry._replace(state=state, sums=sums, failed_at=failed_at)

    def close(carry: Carry, keys: Keys, held_out: PyTree, number: Array, length: Array) -> Carry:
        dtype = carry.sums.dtype
        bound = jnp.asarray(jnp.nan, dtype)
        if has_validation:
            count = jax.tree.leaves(held_out)[0].shape[0]
            # the same draws after every window, so that windows differ only by their networks
            info = elbo(
                keys.validation,
                algorithm.network(carry.state),
                log_likelihood,
                held_out,
                num_data=count,
                num_samples=_VALIDATION_DRAWS,
            )
            bound = (info.log_likelihood / count - info.kl / num_data).astype(dtype)
            is_better = bound > carry.best_bound
            carry = carry._replace(
                best=_tree.where(is_better, carry.state, carry.best),
                best_bound=jnp.where(is_better, bound, carry.best_bound),
                best_window=jnp.where(is_better, number, carry.best_window).astype(jnp.int32),
            )
        row = jnp.concatenate([carry.sums / length.astype(dtype), bound[None]])
        return carry._replace(sums=jnp.zeros_like(carry.sums), table=carry.table.at[number].set(row))

    return advance, close


def _fitted_arrays(algorithm: VariationalAlgorithm, state: Any) -> list[Array]:
    # a network of split arrays may need products of gathered ones
    fitted = state if algorithm.is_split else algorithm.network(state)
    return [leaf for leaf in jax.tree.leaves(fitted) if eqx.is_inexact_array(leaf)]


def is_exhausted(carry: Carry, iteration: int, window: int, patience: int | None) -> bool:
    """Whether the validation bound has not improved for ``patience`` windows."""
    if patience is None or iteration == 0 or iteration % window:
        return False
    return iteration // window - 1 - int(carry.best_window) >= patience


@dataclasses.dataclass
class StepChunks(Chunks):
    """Steps of a fit; see :class:`geodax.run.driver.Chunks`.

    The compiled units overwrite the carry. After non-finite values, or if a chunk is not waited for, the fit goes back
    to a copy that was made with the last checkpoint.

    Attributes:
        loader: From the first step of a chunk and the one after its last to its data.
        longest: Largest number of steps whose data can be loaded at once; None for no limit.
        advance: The first function of :func:`build`, compiled.
        close: The second one.
        patience: Number of windows without a better validation bound after which the fit stops, or None.
        fit_at: From carry, number of steps and whether the fit stopped early to the result of the fit.
        cause_of: From the step that failed to sentences about the cause.
    """

    run: Run
    loader: Callable[[int, int], PyTree]
    longest: int | None
    advance: Callable[..., Carry]
    close: Callable[..., Carry]
    keys: Keys
    held_out: PyTree
    window: int
    patience: int | None
    fit_at: Callable[[Carry, int, bool], Any]
    cause_of: Callable[[int], str]

    name = "vi.fit"
    unit = "step"

    def __post_init__(self) -> None:
        self.saved()

    def limit(self, start: int) -> int:
        end = (start // self.window + 1) * self.window
        return end if self.longest is None else min(end, start + self.longest)

    def load(self, start: int, stop: int) -> None:
        self._data = self.loader(start, stop)

    def compute(self, start: int, stop: int) -> PyTree:
        data, self._data = self._data, None
        self.run.carry = self.advance(self.run.carry, self.keys, data, np.int32(start), np.int32(stop))
        return self.run.carry.failed_at

    def abandon(self) -> None:
        self.run.carry, self.run.iteration = self._put_back(), self._kept_at

    def accept(self, start: int, stop: int) -> int:
        if hosts.is_several():
            jax.block_until_ready(self.run.carry)
        failed_at = int(self.run.carry.failed_at)
        window = start // self.window
        if failed_at == NEVER and stop == min((window + 1) * self.window, self.run.num_iterations):
            number, length = np.int32(window), np.int32(stop - window * self.window)
            self.run.carry = self.close(self.run.carry, self.keys, self.held_out, number, length)
        return failed_at

    def keep(self, start: int, stop: int) -> None:
        self.run.iteration = stop
        if jax.tree.leaves(self.held_out) and (stop % self.window == 0 or stop == self.run.num_iterations):
            bound = float(self.run.carry.table[start // self.window, -1])
            if not np.isfinite(bound):
                raise NonFiniteError(
                    f"vi.fit: the bound of the validation data is {bound} after {stop} of {self.run.num_iterations} "
                    f"steps, so that networks cannot be compared by it. {usual_cause(self.held_out)}",
                    chain=0,
                    iteration=stop,
                    **self.results(),
                )

    def rescue(self, failed_at: int) -> bool:
        self.abandon()
        while self.run.iteration < failed_at:
            start = self.run.iteration
            stop = min(self.limit(start), failed_at)
            self.load(start, stop)
            self.compute(start, stop)
            self.accept(start, stop)
            self.keep(start, stop)
        return True

    def failure(self, where: str) -> NonFiniteError:
        iteration = self.run.iteration
        return NonFiniteError(
            f"vi.fit: the bound or the network is no longer finite at step {iteration} of {self.run.num_iterations}, "
            f"counted from 0. The {iteration} steps before it are kept in the error's `fit`; there is {where}. "
            + self.cause_of(iteration),
            chain=0,
            iteration=iteration,
            **self.results(),
        )

    def has_converged(self) -> bool:
        return is_exhausted(self.run.carry, self.run.iteration, self.window, self.patience)

    def progress(self, rate: float) -> Progress:
        done, num_steps = self.run.iteration, self.run.num_iterations
        return Progress(done, num_steps, 0, None, 0, rate, (num_steps - done) / rate, task="fitting")

    def saved(self) -> None:
        self._put_back, self._kept_at = _copy_of(self.run.carry), self.run.iteration

    def results(self) -> dict[str, Any]:
        return {"fit": self.fit_at(self.run.carry, self.run.iteration, False)}


def _copy_of(carry: Carry) -> Callable[[], Carry]:
    """Copy a carry to host memory; return a function that restores it to its original placement."""
    leaves, structure = jax.tree.flatten(carry)

    def copied(leaf: jax.Array) -> Any:
        is_plain = leaf.is_fully_addressable and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.array(leaf) if is_plain else jnp.copy(leaf)

    kept = [_by_shard(leaf) if _tree.is_split(leaf) else (copied(leaf), leaf.sharding) for leaf in leaves]
    return lambda: structure.unflatten([pair() if callable(pair) else jax.device_put(*pair) for pair in kept])


def _by_shard(leaf: jax.Array) -> Callable[[], jax.Array]:
    shards, shape, sharding = [(np.array(s.data), s.device) for s in leaf.addressable_shards], leaf.shape, leaf.sharding
    return lambda: jax.make_array_from_single_device_arrays(shape, sharding, [jax.device_put(*s) for s in shards])


def history_of(carry: Carry, iteration: int, window: int) -> History:
    """The rows of the windows; that of a window in which a fit stops has the means so far."""
    count = -(-iteration // window)
    table = np.array(carry.table, np.float64)[:count]
    if count and np.isnan(table[-1, 0]):
        table[-1, :3] = np.asarray(carry.sums, np.float64) / (iteration - (count - 1) * window)
    steps = np.minimum((np.arange(count) + 1) * window, iteration)
    return History(steps, *table.T)
