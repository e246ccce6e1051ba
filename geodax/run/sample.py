"""``sample``: run a sampler for many iterations on many chains and return its draws.

Python appends draws, writes checkpoints, updates the progress bar and handles stop requests between compiled chunks of
iterations. Compiled code does none of this.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.sharding import Mesh

from geodax import _checks
from geodax._types import Position, PRNGKey, PyTree
from geodax._wording import argument, in_python
from geodax.data.minibatches import Batches, Stream
from geodax.run import hosts, starts
from geodax.run.advance import Sampler, chain_method_of, description_of
from geodax.run.chunks import ChainChunks, SamplingRun, result_of
from geodax.run.draws import DrawStore
from geodax.run.driver import Checkpoints, drive
from geodax.run.failures import cause_of
from geodax.run.feeding import make_feed, warn_unless_repeatable
from geodax.run.identity import identity_of, require_same_run
from geodax.run.likelihoods import mean_of_batch, warn_if_likely_a_loss
from geodax.run.locks import beside, exclusive
from geodax.run.plan import Plan, adaptation_of
from geodax.run.program_cache import keep_on_disk
from geodax.run.progress import Reporter, reporting
from geodax.run.records import check_names
from geodax.run.sharding import Devices, put_chains
from geodax.run.shards import draws_of, on_hosts
from geodax.run.signals import stop_signals
from geodax.run.warm_starts import GROUP, adapted_values, as_dataset

_BUFFER_BYTES = 8 << 20
_LONGEST_BUFFER = 512


def sample(
    rng_key: PRNGKey,
    algorithm: Sampler,
    position: Position | Callable[[PRNGKey], Position],
    *,
    num_samples: int,
    num_warmup: int = 0,
    num_chains: int = 4,
    thinning: int = 1,
    batches: Batches | Stream | None = None,
    keep: Callable[[Position], PyTree] | None = None,
    store: str | Path | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    stacked: bool = False,
    num_superchains: int | None = None,
    warm_start: xr.DataTree | xr.Dataset | None = None,
    logdensity_args: tuple = (),
    chain_method: str | None = None,
    devices: Devices = None,
    progress: bool | Reporter = True,
) -> xr.DataTree:
    """Run a sampler and collect its draws.

    Randomness is folded from (key, chain, iteration), so draws do not depend on chunks or interruptions. After a
    signal, a crash or a full disk, call ``sample`` again with the same arguments: the run resumes from its checkpoint,
    bit for bit as if it had not been interrupted. A larger ``num_samples`` extends a finished run. Another number of
    devices, or an extension that makes a short run long, keeps all random numbers, but may compile to another program,
    which rounds differently: the draws then agree for some iterations and drift apart like any two nearby trajectories.

    Args:
        rng_key: A JAX random key.
        algorithm: :func:`geodax.hmc`, :func:`geodax.nuts`, or any pair of ``init(position) -> state`` and
            ``step(rng_key, state) -> (state, info)``, such as those of BlackJAX.
        position: The initial position: a pytree of arrays for all chains, or a function ``key -> position`` that is
            called once per chain (recommended, since R-hat needs initial positions that are overdispersed relative to
            the posterior).
        num_samples: Number of draws kept per chain.
        num_warmup: Number of iterations before them, which tune step size and scales; they are not kept.
        num_chains: Number of chains. 16 or more chains are tuned together if the sampler supports it: they share one
            step size, one set of scales and, for ``hmc``, one trajectory length.
        thinning: Keep every ``thinning``-th draw; there are ``num_samples * thinning`` iterations after warm-up.
        batches: Batches of data for a stochastic-gradient sampler, from :func:`geodax.data.batches` or
            :func:`geodax.data.stream`.
        keep: Function from a position to the pytree that is recorded; None records the position. Types that NumPy
            lacks, such as bfloat16, are recorded in single precision.
        store: A folder to which draws are streamed as Zarr. The returned tree then reads draws on access, so they need
            not fit into memory. The group ``adaptation`` is added at the end of the run. Draws that the folder already
            holds raise an error, unless the checkpoint is that of their run. None keeps all in memory (or, with a
            checkpoint, in its folder).
        checkpoint: A folder for checkpoints.
        checkpoint_seconds: Time between checkpoints.
        stacked: Whether ``position`` has a leading chain axis.
        num_superchains: For many short chains, the number of initial positions. The chains are divided among them in
            order, so that nested R-hat (:func:`geodax.diagnostics.findings.nested_rhat`) can measure the remaining
            influence of the initial positions. A ``position`` that is a function is then called once per superchain;
            one with a leading axis holds one point per superchain. None gives each chain its own initial position.
        warm_start: The result of an earlier run with the same sampler, its store opened by ``open_draws``, or the group
            ``adaptation`` of either, for other data or a later program: its step size, mass matrix and trajectory
            length replace the initial ones, and ``num_warmup`` may be small or 0. The chains still start at
            ``position``.
        logdensity_args: Arguments of the log density after the position, such as data: pytrees of arrays, for a sampler
            whose log density takes them. Calls with the same ``algorithm`` object, the same ``keep``, equal numbers and
            arguments of equal shapes trace and compile once, as under ``jax.jit``, so simulations and refits are fast.
        chain_method: How the chains of one device are run, as in NumPyro: ``"vectorized"`` (by ``vmap``) or
            ``"sequential"``, one after the other in each iteration. Vectorized chains of :func:`geodax.nuts` wait for
            the longest trajectory among them, and their program takes longer to compile. None is ``"sequential"`` for
            fewer than 16 chains of ``nuts`` on CPUs, and ``"vectorized"`` otherwise. The draws are the same up to
            rounding.
        devices: Devices for the run: :func:`geodax.device_mesh` with an axis ``"chain"`` for chains and an axis
            ``"data"`` for the examples of each batch; a sequence of devices, a number of devices (of all processes
            together) or ``"all"`` for chains; None takes as many as divide ``num_chains``. In a run of several
            processes each must have at least one device.
        progress: True for a bar on the terminal, False for no output, or a function that receives a
            :class:`~geodax.run.progress.Progress` after each chunk.

    Returns:
        An ``xarray.DataTree`` in ArviZ's layout: ``posterior`` has one variable per leaf, named by its path
        (a bare array is called ``position``), with dimensions chain and draw first; ``sample_stats`` has
        ``acceptance_rate``, ``diverging``, ``energy``, ``n_steps``, ``residual``, ``lp`` and ``step_size`` of the
        iterations that are kept; ``adaptation`` has what warm-up has tuned, one value per chain, for ``warm_start``.
        Attributes count all iterations of all chains: ``num_divergences``, ``num_integration_steps`` (both after
        warm-up), ``num_warmup_integration_steps``; ``sampling_seconds`` include warm-up, but not ``compile_seconds``.

    Raises:
        StartError: If a chain cannot start.
        ValueError, TypeError: For invalid arguments.
        CheckpointError: If the checkpoint is damaged, belongs to another run or other data, or its draws are missing.
        FolderInUseError: If another run uses the same folder.
        StorageError: If draws or checkpoints cannot be written; ``error.draws`` holds the draws so far.
        NonFiniteError: If a stochastic-gradient sampler meets non-finite values; ``error.draws`` holds the draws before
            that.
        SamplingInterrupted: After SIGINT or SIGTERM; ``error.draws`` holds the draws so far. Errors that the batches or
            ``progress`` raise during a run are also passed on with ``error.draws``, after a checkpoint.
    """
    keep_on_disk()
    instead = ", with num_chains for several chains, or use algorithm.init and algorithm.step in a program of yours"
    _checks.outside_programs("sample", instead, rng_key, position, batches, logdensity_args)
    num_samples, num_warmup, num_chains, thinning = _counts(num_samples, num_warmup, num_chains, thinning)
    _check_kinds(algorithm, keep, checkpoint_seconds, progress)
    chain_method = chain_method_of(chain_method, algorithm, num_chains)
    rng_key = _checks.random_key("sample", rng_key)
    adapt, _ = adaptation_of(algorithm, num_chains)
    _check_warmup(algorithm, adapt is not None and warm_start is None, num_warmup)
    feed = make_feed(batches, getattr(algorithm, "num_batches", 0), getattr(algorithm, "num_data", 0))
    starts.check_step(algorithm, feed is not None)
    if num_superchains is not None:
        num_superchains = _checks.superchains(num_chains, num_superchains, "sample")
    start_keys, chain_keys = starts.starting_keys(rng_key, num_superchains or num_chains, num_chains)
    data_args = _as_data(algorithm, logdensity_args)
    start = starts.drawn_positions(start_keys, position)
    mesh, split = starts.placement(start, stacked, num_chains, devices, None if feed is None else feed.batch_size)
    plan = Plan(
        algorithm,
        _whole if keep is None else keep,
        feed,
        (start, num_chains, stacked, num_superchains),
        starts.placed_args(algorithm, data_args, split),
        chain_keys if split is None else put_chains(chain_keys, mesh),
        num_warmup,
        thinning,
        chain_method,
        mesh,
        split,
    )
    carry = plan.begin(warm_start)
    shapes = plan.shapes(carry[0])
    check_names(shapes)
    if split is not None and store is None and checkpoint is None:
        split.check_records(shapes["posterior"])
    num_iterations = num_warmup + num_samples * thinning
    run = SamplingRun(carry, num_iterations, num_warmup=num_warmup, thinning=thinning)
    store, folder = (None if path is None else Path(path).absolute() for path in (store, checkpoint))  # read elsewhere
    identity: dict[str, Any] = {}
    if folder is not None:
        warn_unless_repeatable(batches, "sample")
        identity = identity_of(rng_key, plan, carry[0], shapes)
    del carry  # memory
    # draws without a checkpoint belong to a run that ended before its first one
    is_own = folder is not None and (store is None or folder.exists())
    checkpoints = Checkpoints(folder, identity, checkpoint_seconds, is_split=split is not None)
    with contextlib.ExitStack() as stack:
        stack.enter_context(checkpoints.opened())
        checkpoints.restore(
            run, lambda there: require_same_run(there, identity, run.num_iterations, checkpoints.folder)
        )
        if store is not None:
            stack.enter_context(exclusive(beside(store), store, "write draws to"))
        elif folder is not None:
            store = folder / "draws.zarr"
        # opened only after the checkpoint is known to be this run's, so that another run's draws are not changed
        draws = draws_of(store, shapes, num_chains, num_samples, run.num_draws, split, is_own=is_own)
        if run.iteration < run.num_iterations:
            report = stack.enter_context(reporting(progress))
            buffer_length = _buffer_length(shapes, num_chains, num_samples)
            program, chain_keys, load = plan.program(run, buffer_length)
            signals = stack.enter_context(stop_signals())
            longest = None if feed is None else feed.longest
            known = (buffer_length, longest, "acceptance_rate" in shapes["sample_stats"], mesh)
            cause = functools.partial(cause_of, algorithm, feed, plan.where, split)
            owner = description_of(algorithm).owner
            chunks = ChainChunks(run, program, chain_keys, load, draws, *known, cause, owner)
            drive(run, chunks, checkpoints, report=report, signals=signals, mesh=mesh)
        return _result(plan, run, draws, shapes)


def _result(plan: Plan, run: SamplingRun, draws: DrawStore, shapes: Mapping[str, Mapping[str, tuple]]) -> xr.DataTree:
    tree = result_of(run, draws, shapes, plan.num_chains)
    described, states = description_of(plan.algorithm), run.carry[0]
    if plan.feed is not None and plan.likelihood is not None:
        potential = np.asarray(tree["sample_stats"].dataset["potential"][:, -1])
        lowest = jax.tree.map(lambda x: np.asarray(x)[potential.argmin()], states.position)
        again = functools.partial(mean_of_batch, plan.likelihood, plan.feed, lowest)
        num_data = max(getattr(plan.algorithm, "num_data", 0), 1)
        warn_if_likely_a_loss(described.owner, -float(potential.min()) / num_data, plan.feed, again)
    if described.adapted:
        _keep_adaptation(tree, draws, states, described.adapted, plan.mesh)
    return tree


def _whole(position: Position) -> Position:
    return position


def _check_warmup(algorithm: Sampler, is_needed: bool, num_warmup: int) -> None:
    facts = description_of(algorithm)
    if is_needed and num_warmup == 0:
        raise ValueError(
            f"sample: this sampler trains or tunes its step size during warm-up, but {argument('num_warmup')} is 0; "
            "500 to 1,000 is usual"
            + in_python(
                ("; or give the warm_start of an earlier run" if facts.adapted else "")
                + "; or construct the sampler with a step_size, and without training"
            )
            + "."
        )
    if facts.num_waiting > num_warmup:
        raise ValueError(
            f"sample: this sampler rests while its metric learns, for metric_warmup={facts.num_waiting} iterations, "
            f"but the warm-up has {argument('num_warmup', num_warmup)}, so that draws would repeat the start. Give "
            f"at least {facts.num_waiting}."
        )


def _buffer_length(shapes: Mapping[str, Mapping[str, tuple]], num_chains: int, num_samples: int) -> int:
    """Number of draws that a compiled chunk records."""
    row_bytes = num_chains * sum(int(np.prod(s)) * d.itemsize for g in shapes.values() for s, d in g.values())
    # XLA drops an axis of length 1, and that program may round differently
    most = min(_LONGEST_BUFFER, max(num_samples, 2))
    return int(np.clip(_BUFFER_BYTES // max(row_bytes, 1), 1, most))


def _keep_adaptation(
    tree: xr.DataTree, draws: DrawStore, states: Any, adapted: tuple[str, ...], mesh: Mesh | None
) -> None:
    """Add what warm-up has learned to the result and to the stored draws."""
    fields = {name: on_hosts(getattr(states, name), mesh) for name in adapted}
    learned = as_dataset(adapted_values(SimpleNamespace(**fields), adapted))
    hosts.first_does(lambda: draws.add({GROUP: learned}), "keep what warm-up has learned")
    tree[GROUP] = xr.DataTree(learned)


def _as_data(algorithm: Sampler, logdensity_args: Any) -> tuple:
    _checks.arguments("sample", "logdensity_args", logdensity_args)
    if logdensity_args and (description_of(algorithm).bind is None or description_of(algorithm).arrays):
        raise TypeError(
            "sample: logdensity_args are arguments of the log density of gx.hmc or gx.nuts, or of their microcanonical "
            "forms; other samplers take batches= or a log density that holds its data."
        )
    return jax.tree.map(jnp.asarray, logdensity_args)


def _check_kinds(algorithm: Any, keep: Any, checkpoint_seconds: Any, progress: Any) -> None:
    for part in ("init", "step"):
        if isinstance(algorithm, type) or not callable(getattr(algorithm, part, None)):
            raise TypeError(
                f"sample: the algorithm must have functions init and step, as gx.nuts(logdensity_fn) has, found "
                f"{_checks.described(algorithm)}."
            )
    if keep is not None:
        _checks.function("sample", "keep", keep, "a function of a position")
    _checks.number("sample", "checkpoint_seconds", checkpoint_seconds, least=0.0)
    if not callable(progress) and not isinstance(progress, bool):
        raise TypeError(f"sample: progress must be True, False or a function, found {_checks.described(progress)}.")


def _counts(num_samples: Any, num_warmup: Any, num_chains: Any, thinning: Any) -> tuple[int, int, int, int]:
    num_samples = _checks.whole("sample", "num_samples", num_samples)
    num_warmup = _checks.whole("sample", "num_warmup", num_warmup, least=0)
    num_chains = _checks.whole("sample", "num_chains", num_chains)
    thinning = _checks.whole("sample", "thinning", thinning)
    if num_warmup + num_samples * thinning >= 2**31 - 1:
        raise ValueError("sample: more than 2,147,483,646 iterations in one run; use several runs with different keys.")
    return num_samples, num_warmup, num_chains, thinning
