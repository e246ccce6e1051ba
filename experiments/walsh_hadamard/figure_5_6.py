"""Figures 5 and 6 of Rossi, Marmin and Filippone (2020), supplement: wider and deeper networks.

Walsh-Hadamard networks with one to three hidden layers of several widths: test error and MNLL at the end (Figure 5) and
the test MNLL during the optimisation (Figure 6), with the settings of section D.1. The text of the supplement names no
sets for these figures; ours are one regression and one classification set.

    python -m experiments.walsh_hadamard.figure_5_6 [--smoke]
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import INK, SERIES, panels, spread, table
from experiments.walsh_hadamard.classification import dataset
from experiments.walsh_hadamard.fits import likelihood_of, rate, start, tested
from geodax.data.minibatches import batches
from geodax.vi.optimizers import adam


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: Of split and fit.
        sets: Names.
        widths: Units of each hidden layer.
        depths: Numbers of hidden layers.
        held_steps: Steps with the noise of a regression held.
        free_steps: Steps after them.
        batch_size: Examples of a batch.
        num_draws: At test time.
        num_looks: How often the test set is looked at on the way.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    sets: tuple[str, ...] = ("kin8nm", "letter")
    widths: tuple[int, ...] = (64, 256, 1024)
    depths: tuple[int, ...] = (1, 2, 3)
    held_steps: int = 500
    free_steps: int = 50_000
    batch_size: int = 64
    num_draws: int = 64
    num_looks: int = 20


def pieces(config: Config) -> list[Labels]:
    """The small networks first."""
    return [
        {"seed": seed, "set": name, "width": width, "depth": depth}
        for seed in config.seeds
        for width in config.widths
        for depth in config.depths
        for name in config.sets
    ]


def measure(config: Config, labels: Labels) -> Figures:
    """Fit one network, and test it at equal distances on the way."""
    data = gx.data.supervised(dataset(labels["set"]), split=labels["seed"])
    key_network, key_batches, key_steps, key_test = jax.random.split(jax.random.key(labels["seed"]), 4)
    network = start("WHVI", data, (labels["width"],) * labels["depth"], key_network)
    size = len(data.train[0])
    algorithm = gx.vi.ascent(
        network,
        likelihood_of(data),
        adam(rate()),
        num_data=size,
        held=None if data.num_classes else {"log_noise": config.held_steps},
    )
    feed = batches(jax.tree.map(jnp.asarray, data.train), batch_size=min(config.batch_size, size))

    @jax.jit
    def advance(state, feed, first, last):
        def body(iteration, state):
            batch = feed.draw(key_batches, iteration)
            return algorithm.step(jax.random.fold_in(key_steps, iteration), state, batch, iteration)[0]

        return jax.lax.fori_loop(first, last, body, state)

    state = algorithm.init(network)
    num_steps = config.held_steps + config.free_steps
    looks = np.linspace(0, num_steps, config.num_looks + 1).astype(int)
    curve: list[float] = []
    found: Figures = {}
    for first, last in itertools.pairwise(looks):
        state = advance(state, feed, first, last)
        found = tested(jax.random.fold_in(key_test, last), algorithm.network(state), data, config.num_draws)
        curve.append(float(found["mnll"]))
    kl = gx.nn.total_kl(algorithm.network(state))
    return found | {"steps": looks[1:], "curve": np.array(curve), "kl": kl}


def table_of(figure: str):
    """One row a set and width, one column a depth."""

    def render(record: Record) -> str:
        rows = []
        for name in record.config["sets"]:
            for width in record.config["widths"]:
                cells = []
                for depth in record.config["depths"]:
                    values = record.values(figure, set=name, width=width, depth=depth).astype(float)
                    cells.append(spread(values) if len(values) else "")
                rows.append([name, str(width), *cells])
        return table(["set", "width", *(f"{depth} hidden" for depth in record.config["depths"])], rows)

    return render


def picture(record: Record):
    """Test MNLL during the optimisation: one panel a set and depth, one line a width."""
    sets, depths, widths = (record.config[name] for name in ("sets", "depths", "widths"))
    figure, axes = panels(len(sets), len(depths), width=2.6 * len(depths), height=2.3 * len(sets))
    for i, name in enumerate(sets):
        for j, depth in enumerate(depths):
            ax = axes[i, j]
            for k, width in enumerate(widths):
                for seed, row in enumerate(record.rows(set=name, depth=depth, width=width)):
                    label = None if seed else f"{width} units"
                    ax.plot(row["steps"], row["curve"], color=SERIES[2 * k], linewidth=0.9, label=label)
            ax.set_title(f"{name}, {depth} hidden", fontsize=9, color=INK)
            if i == len(sets) - 1:
                ax.set_xlabel("step", fontsize=8, color=INK)
            if j == 0:
                ax.set_ylabel("test MNLL", fontsize=8, color=INK)
    axes[0, 0].legend(frameon=False, fontsize=7)
    return figure


EXPERIMENT = Experiment(
    name="walsh_hadamard/figure_5_6",
    config=Config(),
    smoke=Config((0,), ("blobs",), widths=(4,), depths=(1, 2), held_steps=2, free_steps=8, num_draws=4, num_looks=2),
    pieces=pieces,
    measure=measure,
    tables={"error": table_of("error"), "mnll": table_of("mnll")},
    pictures={"curves": picture},
)

if __name__ == "__main__":
    main(EXPERIMENT)
