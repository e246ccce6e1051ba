"""One run of SGRLD on a network that classifies images, as sections 4.3 and 4.4 of the paper describe it.

The learning rate is on the mean potential, :math:`\\ell = h n`. The first 1,000 iterations are burn-in; then the
predictions of every hundredth draw are averaged. RMSprop, Wenzel and Shampoo have the decay 0.99 and epsilon 1e-8,
Monge the decay 0.9; all leave the divergence of the metric out, as the paper does. What the paper does not say of Shampoo
is as in its authors' published program (github.com/ksnxr/SSGRLDNDM): blocks of 128, statistics of every gradient, and
biases and the horseshoe's scales in the identity.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from experiments.common import batch_norm, classifiers
from experiments.common.chains import Chains, Plan, run_chains
from experiments.common.experiment import Figures
from geodax._tree import leaf_names

LOOKS = 100  # points of the curve over a run
_NUM_CURVED = 1000  # test images whose curvature is measured at each look
# what is added to a gradient's norm: as in the program of Srinivas et al. (2022), and what figures in print agree with
CURVATURES = {"curvature": 1e-6, "softened_curvature": 1e-4}

_START = 0xFFFFFFFE  # folded into a seed for its start; iterations count from 0


def metric_of(name: str, alpha2: float, num_an_epoch: int) -> Any:
    """A metric by the name that the paper's tables give it, or one of ours beside them.

    Args:
        name: One of ``published.METRICS``; ``"Monge, Γ and lag"`` and ``"Monge, averaged Γ"``, with a divergence;
            ``"Monge, lag"``, with the gradients before the current one and no divergence; ``"Shampoo, vectors too"``,
            with full matrices for vectors, as the paper's equations have them; or that without blocks, ``"Shampoo,
            whole matrices"``.
        alpha2: Monge's.
        num_an_epoch: Iterations of an epoch, after which Wenzel's scales change.

    Returns:
        The metric.
    """
    kronecker = {"decay": 0.99, "epsilon": 1e-8, "statistics_every": 1, "update_every": 100}
    return {
        "Identity": lambda: gx.metrics.Identity(),
        "Wenzel": lambda: gx.metrics.Wenzel(decay=0.99, epsilon=1e-8, update_every=num_an_epoch),
        "RMSprop": lambda: gx.metrics.RMSProp(decay=0.99, epsilon=1e-8),
        "Monge": lambda: gx.metrics.Monge(alpha2=alpha2, decay=0.9, gamma="none", lag=False),
        "Monge, Γ and lag": lambda: gx.metrics.Monge(alpha2=alpha2, decay=0.9, gamma="full", lag=True),
        "Monge, averaged Γ": lambda: gx.metrics.Monge(alpha2=alpha2, decay=0.9, gamma="averaged", lag=True),
        "Monge, lag": lambda: gx.metrics.Monge(alpha2=alpha2, decay=0.9, gamma="none", lag=True),
        "Shampoo": lambda: gx.metrics.Shampoo(**kronecker, block_size=128, vectors="identity"),
        "Shampoo, vectors too": lambda: gx.metrics.Shampoo(**kronecker, block_size=128),
        "Shampoo, whole matrices": lambda: gx.metrics.Shampoo(**kronecker, block_size=10_000),
    }[name]()


def drawn(key: jax.Array, network_of: Callable[[jax.Array], Any], *, biases: str = "uniform") -> Any:
    """A network whose weights are normal with variance 2 / fan-in; its normalisation is as it is built.

    Args:
        key: Randomness.
        network_of: From a random key to a network.
        biases: ``"uniform"`` in plus and minus the root of 1 / size, as in the authors' program; ``"normal"`` with
            variance 1, draws of their Gaussian prior, which a chain of 400 epochs does not forget; or ``"zero"``.

    Returns:
        The network.
    """
    key_network, key_draw, key_biases = jax.random.split(key, 3)
    network = network_of(key_network)
    normal, structure = jax.tree.flatten(gx.nn.Priors().sample(key_draw, network))
    names = leaf_names(network, "")
    keys = jax.random.split(key_biases, len(names))

    def start(name: str, key: jax.Array, built: jax.Array, draw: jax.Array) -> jax.Array:
        if "norm" in name:
            return built
        if not name.endswith("bias") or biases == "normal":
            return draw
        if biases == "zero":
            return jnp.zeros_like(built)
        bound = built.size**-0.5
        return jax.random.uniform(key, built.shape, built.dtype, -bound, bound)

    return structure.unflatten(list(map(start, names, keys, jax.tree.leaves(network), normal)))


def run_sgrld(
    images: classifiers.Images,
    start_of: Callable[[jax.Array], Any],
    priors: gx.nn.Priors,
    metric: Any,
    *,
    learning_rate: float,
    seeds: tuple[int, ...],
    epochs: int,
    batch_size: int,
    num_burn: int,
    thinning: int,
    folder: Path,
    looks: int = LOOKS,
) -> list[Figures]:
    """Figures of each seed.

    Args:
        images: Training and test images.
        start_of: From a random key to a network; if it has batch normalisation, its statistics are frozen after burn-in.
        priors: Priors by rule.
        metric: Of the sampler.
        learning_rate: On the mean potential.
        seeds: One chain each, side by side.
        epochs: Passes through the data.
        batch_size: Images of a batch.
        num_burn: Iterations before the draws.
        thinning: Iterations between draws.
        folder: For the checkpoint.
        looks: Points of the curve.

    Returns:
        For each seed scores of the ensemble, the mean curvatures of its networks, seconds an epoch, and the curve.
    """
    batches = classifiers.batches_of(images, batch_size)
    predict = classifiers.probabilities(images.test)
    epsilons = tuple(CURVATURES.values())
    curve = jax.jit(jax.vmap(classifiers.curvature(images, _num_curved(images), epsilons), out_axes=1))
    num_an_epoch = batches.num_an_epoch
    look_epochs = max(1, epochs // looks)

    def look(positions: Any, sums: Any, num_draws: int) -> dict[str, Any]:
        seen: dict[str, Any] = {n: _listed(v, 4) for n, v in zip(CURVATURES, curve(positions), strict=True)}
        if num_draws:
            found = [classifiers.scores(p / num_draws, images.test_labels) for p in np.asarray(sums)]
            for name in ("log_p", "accuracy", "ece"):
                seen[name] = [None if s[name] is None else round(s[name], 5) for s in found]
        return seen

    def algorithm_of(likelihood: Callable) -> Any:
        return gx.sgrld(
            classifiers.posterior_of(images, priors, likelihood),
            metric=metric,
            step_size=learning_rate / len(images.train),
            # Shampoo's first roots know a single gradient
            metric_warmup=min(100, num_burn // 2) if isinstance(metric, gx.metrics.Shampoo) else 0,
        )

    starts = [priors.extend(start_of(jax.random.fold_in(jax.random.key(seed), _START))) for seed in seeds]
    is_batch = bool(batch_norm.layers_of(starts[0]))
    plan = Plan(
        batch_norm.sampler_of(algorithm_of, starts[0], is_frozen=False),
        batches,
        num_steps=epochs * num_an_epoch,
        chunk=int(np.gcd.reduce([num_burn, thinning, num_an_epoch])),
        observe=predict,
        first_draw=num_burn,
        every=thinning,
        look=look,
        look_every=look_epochs * num_an_epoch,
        then=batch_norm.sampler_of(algorithm_of, starts[0], is_frozen=True) if is_batch else None,
        then_at=num_burn,
        between=batch_norm.freeze(images.train) if is_batch else None,
    )
    positions = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
    chains = run_chains(plan, positions, seeds, folder / "chains.npz", report=print)
    return [_figures(chains, i, images, num_an_epoch, num_burn) for i in range(len(seeds))]


def _figures(chains: Chains, i: int, images: classifiers.Images, num_an_epoch: int, num_burn: int) -> Figures:
    found: Figures = dict.fromkeys(("log_p", "accuracy", "ece", "brier", "confidence"))
    if chains.num_draws and chains.failed_at[i] is None:
        found = classifiers.scores(np.asarray(chains.sums)[i] / chains.num_draws, images.test_labels)
    points = [point for point in chains.curve if "log_p" in point]
    after_burn = [point for point in chains.curve if point["iteration"] > num_burn]
    curvatures = {
        name: [point[name][i] for point in after_burn if point[name][i] is not None]
        for name in CURVATURES
        if all(name in point for point in after_burn)
    }
    return (
        found
        | chains.seconds(num_an_epoch)
        | {
            "num_draws": chains.num_draws,
            "failed_at": chains.failed_at[i],
            **{name: float(np.mean(values)) if values else None for name, values in curvatures.items()},
            "curved_images": _num_curved(images),
            "curve_epochs": [point["iteration"] / num_an_epoch for point in points],
            "curve_log_p": [point["log_p"][i] for point in points],
            "curve_accuracy": [point["accuracy"][i] for point in points],
            "curve_ece": [point["ece"][i] for point in points],
        }
    )


def _num_curved(images: classifiers.Images) -> int:
    return min(_NUM_CURVED, len(images.test))


def _listed(values: Any, digits: int) -> list[float | None]:
    return [round(float(v), digits) if np.isfinite(v) else None for v in np.asarray(values)]
