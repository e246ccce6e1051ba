"""``vi.fit``: run a variational method for many steps and return the fitted network.

As in :func:`geodax.sample`, the compiled unit is a chunk of steps that draws its batches. Between chunks Python keeps
the history, computes the validation bound, updates the progress bar, writes checkpoints and handles stop requests.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from geodax import _checks, _parameters
from geodax._types import Array, PRNGKey, PyTree
from geodax.data.minibatches import batches, require_no_batches
from geodax.posterior import Posterior
from geodax.run import hosts, sharding
from geodax.run.driver import Checkpoints, Run, drive
from geodax.run.failures import from_the_start, is_defined, of_large_numbers, suspected
from geodax.run.feeding import Feed, loader_of, make_step_feed, warn_unless_repeatable
from geodax.run.fit_chunks import Carry, History, Keys, StepChunks, build, first_carry, history_of, is_exhausted
from geodax.run.fit_identity import fit_facts, require_same_facts, require_same_start, start_facts
from geodax.run.likelihoods import mean_of_batch, warn_if_examples_mix, warn_if_likely_a_loss
from geodax.run.programs import compiled
from geodax.run.progress import Reporter, reporting
from geodax.run.signals import stop_signals
from geodax.run.split import Split, mesh_of, split_of
from geodax.sgmcmc.schedules import as_schedule
from geodax.vi.elbo import VariationalAlgorithm, ascent, elbo
from geodax.vi.modules import draw, has_posterior
from geodax.vi.optimizers import Optimizer, adam

_NUM_WINDOWS = 100
_LEARNING_RATE = 1e-3
_LOW = -10.0  # mean log likelihood of an example in nats, below which it is compared with that at the start
_LARGE_RATE = "The usual cause is a learning rate that is too large (try a third of it)."


class Fit(NamedTuple):
    """Result of :func:`fit`.

    Attributes:
        network: The fitted network; with validation data, that of the best window.
        history: The fit over time.
        num_steps: Number of steps done, fewer than requested after early stopping.
        stopped_early: Whether the fit stopped early.
        seconds: Time in compiled code.
    """

    network: Any
    history: History
    num_steps: int
    stopped_early: bool
    seconds: float


def fit(
    key: PRNGKey,
    network: PyTree,
    log_likelihood: Callable[[Any, PyTree], jax.Array],
    data: PyTree,
    *,
    num_steps: int,
    batch_size: int | None = None,
    num_data: int | None = None,
    learning_rate: Any = None,
    optimizer: Optimizer | None = None,
    algorithm: VariationalAlgorithm | None = None,
    num_samples: int = 1,
    kl_warmup: int = 0,
    held: Mapping[str, int] | None = None,
    log_prior: Callable[[PyTree], Any] | None = None,
    validation: PyTree | None = None,
    patience: int | None = None,
    window: int | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    devices: sharding.Devices = None,
    progress: bool | Reporter = True,
) -> Fit:
    """Fit a variational posterior by stochastic ascent of the evidence lower bound.

    All randomness is folded from (key, step). Call ``fit`` again with the same arguments to resume an interrupted fit
    from its checkpoint, bit for bit as if it had not been interrupted.

    Args:
        key: A JAX random key.
        network: A network with variational layers (:class:`~geodax.nn.WHVILinear` and its siblings), or a posterior
            over any position (:class:`~geodax.vi.GaussianOver`). Arrays that are not part of a posterior are optimised.
        log_likelihood: ``(position, batch) -> (B,)``, the log likelihood of each example, as for
            :class:`geodax.Posterior`: ``nn.GaussianLikelihood()`` with a network in a :class:`~geodax.nn.WithNoise`,
            ``nn.CategoricalLikelihood()``, or your own function.
        data: Arrays whose first axis is that of the examples, ``(x, y)`` for the likelihoods of ``nn``. Or batches of
            them from :mod:`geodax.data`: ``batches`` with another order or an augmentation, or ``stream``,
            ``from_loader`` or ``shards`` for data that do not fit on the device.
        num_steps: Number of steps.
        batch_size: For arrays, number of examples of a batch, drawn with replacement; None uses all data in every step.
        num_data: Number of examples of a pass through a stream, to which the likelihood of a batch is scaled.
        learning_rate: Learning rate of Adam: a number or a function of the step (:mod:`geodax.sgmcmc.schedules`); None
            for 0.001.
        optimizer: An optax optimiser in place of Adam, with its own learning rate. Its gradients are those of minus the
            bound divided by the number of examples. Line-search optimisers (``optax.lbfgs()``) raise an error, because
            each step has a new estimate of the bound.
        algorithm: Another method, :func:`geodax.vi.vogn`, :func:`geodax.vi.ivon` or :func:`geodax.vi.noisy_kfac`, in
            place of ascent by an optimiser. It has its own versions of the arguments of the ascent (``learning_rate``,
            ``optimizer``, ``num_samples``, ``kl_warmup``, ``held``, ``log_prior``).
        num_samples: Number of draws of the weights per example in a step.
        kl_warmup: Number of steps in which the weight of the divergence rises to 1.
        held: Maps shell patterns of array paths to the number of steps for which these arrays are held fixed:
            ``{"log_noise": 500}``.
        log_prior: Log density of a prior over parameters without a posterior, a function of the network.
        validation: Held-out data of the same form. The bound on them is computed after each window, and the network
            with the best one is returned.
        patience: Number of windows without a better validation bound after which the fit stops; None never stops early.
        window: Number of steps per window of the history; None makes about a hundred windows.
        checkpoint: A folder for checkpoints.
        checkpoint_seconds: Time between them.
        devices: Devices for each step: :func:`geodax.device_mesh` with an axis ``"data"`` for the examples of its batch
            and an axis ``"chain"`` for its draws of the weights; a sequence of devices, a number of devices or
            ``"all"`` for the examples; None is the default device, or all devices of all processes if there are
            several.
        progress: True for a bar on the terminal, False for no output, or a function that receives a
            :class:`~geodax.run.progress.Progress`.

    Returns:
        The fitted network with its history.

    Raises:
        ValueError, TypeError: For invalid arguments.
        NonFiniteError: If the bound or the network is non-finite after a step, or the bound of the validation data
            after a window; the message names the step.
        CheckpointError: If the checkpoint is damaged, or of another fit: other data, another network, likelihood,
            prior, learning rate or optimiser, as far as settings and the first step show it.
        FolderInUseError: If another fit uses the same folder.
        StorageError: If a checkpoint cannot be written.
        SamplingInterrupted: After SIGINT or SIGTERM. The last two and NonFiniteError carry the fit so far in
            ``error.fit``.
    """
    instead = ", or use init and step of gx.vi.ascent in a program of yours"
    _checks.outside_programs("vi.fit", instead, key, network, data)
    _parameters.undeleted("vi.fit", "network", network)
    num_steps = _checks.whole("vi.fit", "num_steps", num_steps)
    window, patience = (
        value if value is None else _checks.whole("vi.fit", name, value)
        for name, value in (("window", window), ("patience", patience))
    )
    if patience is not None and validation is None:
        raise ValueError("vi.fit: patience needs validation data to look at; give validation=(x, y).")
    window = max(1, num_steps // _NUM_WINDOWS) if window is None else window
    key = _checks.random_key("vi.fit", key)
    _checks.function("vi.fit", "log_likelihood", log_likelihood, "a function of position and batch")
    _checks.number("vi.fit", "checkpoint_seconds", checkpoint_seconds, least=0.0)
    feed = make_step_feed(data, batch_size, num_data)
    num_data = feed.num_data
    is_ascent = algorithm is None
    if algorithm is None:
        learning_rate = _LEARNING_RATE if learning_rate is None and optimizer is None else learning_rate
        own = {"num_samples": num_samples, "kl_warmup": kl_warmup, "held": held, "log_prior": log_prior}
        algorithm = ascent(network, log_likelihood, _optimizer(optimizer, learning_rate), num_data=num_data, **own)
        _warn_without_posterior(network, log_prior)
    _check_number_of_data(algorithm, num_data)
    keys = Keys(*jax.random.split(key, 3))
    can_split = is_ascent or algorithm.is_split
    mesh, split = _placement(network, devices, num_samples if is_ascent else 1, feed.batch_size, can_split)
    if split is not None:
        network = eqx.combine(split.placed(eqx.filter(network, eqx.is_inexact_array)), network)
    state = algorithm.init(network)
    is_whole = split is None and not hosts.is_several()
    if is_whole:
        _warn_if_examples_mix(algorithm.network(state), log_likelihood, feed)

    def carry_at(network: PyTree, state: Any) -> Carry:
        return first_carry(network, state, -(-num_steps // window), validation is not None)

    held_out = () if validation is None else _like_data(validation, feed)
    put_carry = functools.partial(sharding.put_everywhere, mesh=mesh) if split is None else split.placed
    run = Run(carry_at(network, state), num_steps)
    if split is not None:
        run.carry = split.placed(run.carry)
    counts = {
        "num_steps": num_steps,
        **feed.identity,
        "num_samples": num_samples,
        "kl_warmup": kl_warmup,
        "held": repr(sorted((held or {}).items())),
        "window": window,
    }
    folder, identity = None if checkpoint is None else Path(checkpoint), {}
    if folder is not None:
        rate = learning_rate if is_ascent else None
        identity = fit_facts(key, network, (feed.examples, held_out), state, rate, counts)
        warn_unless_repeatable(data, "vi.fit")
    checkpoints = Checkpoints(folder, identity, checkpoint_seconds, is_split=split is not None)
    with contextlib.ExitStack() as stack:
        stack.enter_context(checkpoints.opened())
        found = checkpoints.restore(run, lambda facts: require_same_facts(facts, identity, folder))

        def fit_at(carry: Carry, iteration: int, is_stopped: bool) -> Fit:
            chosen = carry.state if validation is None or np.isneginf(carry.best_bound) else carry.best
            history = history_of(carry, iteration, window)
            if mesh is not None and split is None:  # to the default device
                chosen = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), chosen)
            return Fit(algorithm.network(chosen), history, iteration, is_stopped, run.seconds)

        cause = functools.partial(_cause, network, algorithm, log_likelihood, feed, keys, is_whole)
        report = stack.enter_context(reporting(progress))
        signals = stack.enter_context(stop_signals())
        number = np.int32(0)
        run.carry = put_carry(run.carry)
        keys, held_out = (sharding.put_everywhere(tree, mesh) for tree in (keys, held_out))
        load = loader_of(feed, mesh)
        first = load(0, 1)
        advance, close = _units(algorithm, log_likelihood, feed, validation is not None, mesh, split)
        advancing = compiled(advance, run.carry, keys, first, number, number, donate_argnums=(0,))
        if folder is not None:

            def first_step(start: PyTree) -> tuple[Any, Carry]:
                state = algorithm.init(start)
                return state, advancing(put_carry(carry_at(start, state)), keys, first, number, np.int32(1))

            prior = log_prior if is_ascent else None
            beginning = start_facts(network, feed.examples, algorithm.network, first_step, prior)
            hosts.first_does(lambda: require_same_start(found, beginning, folder), "resume from its checkpoint")
            checkpoints.identity |= beginning
        del first  # memory
        if run.iteration < num_steps and not is_exhausted(run.carry, run.iteration, window, patience):
            closing = compiled(close, run.carry, keys, held_out, number, number, donate_argnums=(0,))
            chunks = StepChunks(
                run, load, feed.longest, advancing, closing, keys, held_out, window, patience, fit_at, cause
            )
            drive(run, chunks, checkpoints, report=report, signals=signals, mesh=mesh)
    fitted = fit_at(run.carry, run.iteration, run.iteration < num_steps)
    if fitted.history.log_likelihood.size:
        last = float(fitted.history.log_likelihood[-1]) / feed.num_data
        warn_if_likely_a_loss("vi.fit", last, feed)
        if is_whole and validation is None and run.iteration >= _NUM_WINDOWS and last < _LOW:
            _warn_if_diverged(algorithm.network(algorithm.init(network)), log_likelihood, feed, last)
    return fitted


def _units(
    algorithm: VariationalAlgorithm,
    log_likelihood: Callable[[Any, PyTree], Array],
    feed: Feed,
    has_validation: bool,
    mesh: Mesh | None,
    split: Split | None,
) -> tuple[Callable[..., Carry], Callable[..., Carry]]:
    """The functions that advance the fit and close a window, each over the devices of the mesh."""
    sizes = {} if mesh is None else mesh.shape
    axes = tuple(name for name in (sharding.CHAIN_AXIS, sharding.DATA_AXIS) if sizes.get(name, 1) > 1)
    advance, close = build(algorithm, log_likelihood, feed.draw, feed.num_data, has_validation, axes, split)
    where = feed.placement(sharding.data_axis(mesh))
    everywhere = sharding.everywhere_alike
    return everywhere(advance, mesh, where, split), everywhere(close, mesh, PartitionSpec(), split)


def _cause(
    network: PyTree,
    algorithm: VariationalAlgorithm,
    log_likelihood: Callable[[Any, PyTree], Array],
    feed: Feed,
    keys: Keys,
    is_whole: bool,
    step: int,
) -> str:
    """Sentences about why a step failed; ``is_whole`` if one device of one process has all of the fit."""
    number = jnp.asarray(step, jnp.int32)
    batch = feed.draw(loader_of(feed, None)(step, step + 1), keys.batches, number, number, None)
    examples = feed.examples if feed.longest is None else batch
    parts, rest = eqx.partition(algorithm.network(algorithm.init(network)), eqx.is_inexact_array)

    def bound(parts: PyTree, batch: PyTree) -> Array:
        return elbo(keys.steps, eqx.combine(parts, rest), log_likelihood, batch, num_data=feed.num_data).elbo

    if is_whole and not is_defined(bound, parts, batch):
        return from_the_start("bound", ", with the batch of that step", examples)
    return f"{suspected(examples)}{_LARGE_RATE}{of_large_numbers(examples)}"


def _check_number_of_data(algorithm: VariationalAlgorithm, num_data: int) -> None:
    if algorithm.num_data not in (None, num_data):
        raise ValueError(
            f"vi.fit: the algorithm was made with num_data={algorithm.num_data}, but the data have {num_data} "
            f"examples, on which the width of the posterior depends. Make it with num_data={num_data}."
        )


def _warn_without_posterior(network: PyTree, log_prior: Callable[[PyTree], Any] | None) -> None:
    if log_prior is None and not has_posterior(network):
        _checks.warn(
            "vi.fit: no part of the network has a posterior, so this is maximum likelihood. Use variational layers "
            "(gx.nn.WHVILinear, gx.nn.MeanFieldLinear), wrap the network (gx.vi.GaussianOver), or give log_prior= for "
            "a mode of the posterior."
        )


def _warn_if_diverged(start: PyTree, log_likelihood: Callable[[Any, PyTree], Array], feed: Feed, last: float) -> None:
    first = mean_of_batch(log_likelihood, feed, draw(start, jax.random.key(0)))
    if last < first - 10.0 * abs(first):  # a draw of the start alone is noisy
        _checks.warn(
            f"vi.fit: the fit diverged: the mean log likelihood of an example is {last:.3g} at the end, and was "
            f"{first:.3g} at the start. {_LARGE_RATE}"
        )


def _optimizer(optimizer: Optimizer | None, learning_rate: Any) -> Optimizer:
    """Return the user's optimiser, or Adam with the learning rate."""
    if optimizer is None:
        return adam(as_schedule("vi.fit", "learning_rate", learning_rate))
    if learning_rate is not None:
        raise ValueError(
            f"vi.fit: learning_rate is Adam's, but an optimizer is given, which has its own; found "
            f"{_checks.described(learning_rate)}. Leave one of the two out: optimizer=optax.adamw(1e-3)."
        )
    return optimizer


def _warn_if_examples_mix(network: PyTree, log_likelihood: Callable[[Any, PyTree], Array], feed: Feed) -> None:
    parts, rest = eqx.partition(network, eqx.is_inexact_array)

    def of_draw(parts: PyTree, batch: PyTree) -> Array:
        return log_likelihood(draw(eqx.combine(parts, rest), jax.random.key(0)), batch)

    checked = Posterior(log_prior=lambda _: 0.0, log_likelihood=of_draw, num_data=feed.num_data)
    warn_if_examples_mix("vi.fit", checked.likelihoods, feed.num_data, feed, parts)


def _placement(
    network: PyTree, devices: sharding.Devices, num_samples: int, batch_size: int, can_split: bool
) -> tuple[Mesh | None, Split | None]:
    arrays = eqx.filter(network, eqx.is_inexact_array)
    own = mesh_of("vi.fit", arrays)
    if own is not None and devices in (None, own):
        mesh = sharding.as_mesh("vi.fit", num_samples, own, batch_size, "draws of the weights", is_split=True)
    else:
        mesh = _mesh(devices, num_samples, batch_size)
    split = split_of("vi.fit", arrays, mesh, False)
    if split is not None and not can_split:
        raise ValueError(
            f"vi.fit: this algorithm keeps whole arrays, which cannot be split over {list(split.axes)}. Split "
            "the network first and make both with it: network = gx.shard(network, mesh), gx.vi.ivon(network, ...), "
            "gx.vi.fit(key, network, ...)."
        )
    return mesh, split


def _mesh(devices: sharding.Devices, num_samples: int, batch_size: int) -> Mesh | None:
    if devices is None:
        several = sharding.device_mesh(chain=1, data=jax.device_count()) if hosts.is_several() else None
        return None if several is None else sharding.as_mesh("vi.fit", 1, several, batch_size)
    if not isinstance(devices, Mesh):
        devices = sharding.device_list("vi.fit", devices)
        devices = sharding.device_mesh(chain=1, data=len(devices), devices=devices)
    return sharding.as_mesh("vi.fit", num_samples, devices, batch_size, "draws of the weights")


def _like_data(validation: PyTree, feed: Feed) -> PyTree:
    batch = feed.examples
    if feed.longest is None:
        batch = jax.eval_shape(feed.draw, feed.load(0, 0), jax.random.key(0), jnp.int32(0), jnp.int32(0), None)
    require_no_batches("vi.fit", validation)
    held_out = batches(validation, batch_size=1).data
    if jax.tree.structure(held_out) != jax.tree.structure(batch) or any(
        a.shape[1:] != b.shape[1:] for a, b in zip(jax.tree.leaves(held_out), jax.tree.leaves(batch), strict=True)
    ):
        raise ValueError("vi.fit: validation must have the form of the data, such as (x, y), with as many columns.")
    return held_out
