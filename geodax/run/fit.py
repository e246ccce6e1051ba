"""``vi.fit``: run a variational method for many steps and return the fitted network.

As in :func:`geodax.sample`, the compiled unit is a chunk of steps that draws its batches. Between chunks Python keeps
the history, computes the validation bound, updates the progress bar, writes checkpoints and handles stop requests.
"""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from geodax import _checks, _parameters
from geodax._types import PRNGKey, PyTree
from geodax.data.minibatches import batches, require_no_batches
from geodax.run import hosts, sharding
from geodax.run.driver import Checkpoints, Run, drive
from geodax.run.feeding import Feed, make_step_feed, warn_unless_repeatable
from geodax.run.fit_chunks import Carry, History, Keys, is_exhausted
from geodax.run.fit_identity import fit_facts, require_same_facts, require_same_start
from geodax.run.fit_plan import FitPlan
from geodax.run.likelihoods import warn_if_likely_a_loss
from geodax.run.progress import Reporter, reporting
from geodax.run.signals import stop_signals
from geodax.run.split import Split, mesh_of, split_of
from geodax.sgmcmc.schedules import as_schedule
from geodax.vi.elbo import VariationalAlgorithm, ascent
from geodax.vi.modules import has_posterior
from geodax.vi.optimizers import Optimizer, adam

_NUM_WINDOWS = 100
_LEARNING_RATE = 1e-3
_LOW = -10.0  # mean log likelihood of an example in nats, below which it is compared with that at the start


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
    held_out = () if validation is None else _like_data(validation, feed)
    plan = FitPlan(algorithm, network, log_likelihood, feed, held_out, keys, mesh, split, num_steps, window)
    if plan.is_whole:
        plan.warn_if_examples_mix()
    run = Run(plan.first_carry(network, plan.state), num_steps)
    if split is not None:
        run.carry = plan.placed(run.carry)
    folder, identity = None if checkpoint is None else Path(checkpoint), {}
    if folder is not None:
        counts = {
            "num_steps": num_steps,
            **feed.identity,
            "num_samples": num_samples,
            "kl_warmup": kl_warmup,
            "held": repr(sorted((held or {}).items())),
            "window": window,
        }
        rate = learning_rate if is_ascent else None
        identity = fit_facts(key, network, (feed.examples, held_out), plan.state, rate, counts)
        warn_unless_repeatable(data, "vi.fit")
    checkpoints = Checkpoints(folder, identity, checkpoint_seconds, is_split=split is not None)

    def fit_at(carry: Carry, iteration: int, is_stopped: bool) -> Fit:
        chosen, history = plan.result(carry, iteration)
        return Fit(chosen, history, iteration, is_stopped, run.seconds)

    with contextlib.ExitStack() as stack:
        stack.enter_context(checkpoints.opened())
        found = checkpoints.restore(run, lambda facts: require_same_facts(facts, identity, folder))
        report = stack.enter_context(reporting(progress))
        signals = stack.enter_context(stop_signals())
        run.carry = plan.placed(run.carry)
        first = plan.load(0, 1)
        program = plan.program(run.carry, first)
        if folder is not None:
            beginning = plan.beginning(program, first, log_prior if is_ascent else None)
            hosts.first_does(lambda: require_same_start(found, beginning, folder), "resume from its checkpoint")
            checkpoints.identity |= beginning
        del first  # memory
        if run.iteration < num_steps and not is_exhausted(run.carry, run.iteration, window, patience):
            chunks = plan.chunks(run, program, patience, fit_at)
            drive(run, chunks, checkpoints, report=report, signals=signals, mesh=mesh)
    fitted = fit_at(run.carry, run.iteration, run.iteration < num_steps)
    if fitted.history.log_likelihood.size:
        last = float(fitted.history.log_likelihood[-1]) / feed.num_data
        warn_if_likely_a_loss("vi.fit", last, feed)
        if plan.is_whole and validation is None and run.iteration >= _NUM_WINDOWS and last < _LOW:
            plan.warn_if_diverged(last)
    return fitted


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
