"""Figure 2 of Rossi, Marmin and Filippone (2020), supplement: the nearest S_1 H diag(g) H S_2 to a random matrix.

The least root mean squared error over s_1, s_2 and g, for matrices with entries uniform on (-1, 1). For given s_1 and s_2
the best g is a linear least-squares problem with orthogonal columns, and the same holds for s_1 and for s_2 given the other
two: the error is minimised by going round the three in turn, from several starts. The zero matrix has the error 0.577.

    python -m experiments.walsh_hadamard.figure_2 [--smoke]
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import INK, SERIES, panels, table
from geodax.geometry.hadamard import fwht


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: Matrices of each size.
        bits: Sizes, as powers of two.
        num_starts: Starts of the minimisation.
        num_rounds: Rounds through g, s_1 and s_2.
    """

    seeds: tuple[int, ...] = tuple(range(20))
    bits: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    num_starts: int = 10
    num_rounds: int = 1000


def pieces(config: Config) -> list[Labels]:
    """Every matrix of every size."""
    return [{"bits": bits, "seed": seed} for bits in config.bits for seed in config.seeds]


def fit(target, key, num_rounds: int):
    """Alternating least squares from one start; the error at the end."""
    size = len(target)
    index = np.arange(size)[:, None] ^ np.arange(size)[None]

    def kernel(g):
        return fwht(g)[index] / jnp.sqrt(size).astype(g.dtype)

    def best_scale(matrix):
        """Row by row, the factor that takes ``matrix`` nearest to the target."""
        square = jnp.sum(matrix**2, axis=1)
        return jnp.sum(matrix * target, axis=1) / jnp.where(square > 0, square, 1.0)

    def body(_, parts):
        s1, s2 = parts
        weights = (s1[:, None] * s2[None]) ** 2
        # (Hg)_k is fitted to all entries with i xor j = k, which are its only places
        numerator = jnp.zeros(size, target.dtype).at[index].add(s1[:, None] * s2[None] * target)
        denominator = jnp.zeros(size, target.dtype).at[index].add(weights)
        mixed = jnp.sqrt(size).astype(target.dtype) * numerator / jnp.where(denominator > 0, denominator, 1.0)
        k = kernel(fwht(mixed))
        s1 = best_scale(k * s2[None])
        columns = s1[:, None] * k
        square = jnp.sum(columns**2, axis=0)
        s2 = jnp.sum(columns * target, axis=0) / jnp.where(square > 0, square, 1.0)
        # the parts' common scale is free
        balance = jnp.sqrt(jnp.linalg.norm(s1) / jnp.linalg.norm(s2))
        return s1 / balance, s2 * balance

    key_1, key_2 = jax.random.split(key)
    start = (jax.random.normal(key_1, (size,), target.dtype), jax.random.normal(key_2, (size,), target.dtype))
    s1, s2 = jax.lax.fori_loop(0, num_rounds, body, start)
    weights = (s1[:, None] * s2[None]) ** 2
    numerator = jnp.zeros(size, target.dtype).at[index].add(s1[:, None] * s2[None] * target)
    denominator = jnp.zeros(size, target.dtype).at[index].add(weights)
    fitted = s1[:, None] * (numerator / denominator)[index] * s2[None]
    return jnp.sqrt(jnp.mean((target - fitted) ** 2))


@functools.partial(jax.jit, static_argnames="num_rounds")
def fits(target, keys, num_rounds: int):
    """The errors from several starts, one after the other."""
    return jax.lax.map(lambda key: fit(target, key, num_rounds), keys)


def measure(config: Config, labels: Labels) -> Figures:
    """The least error over the starts."""
    size = 2 ** labels["bits"]
    key_target, key_starts = jax.random.split(jax.random.fold_in(jax.random.key(labels["seed"]), size))
    target = jax.random.uniform(key_target, (size, size), jnp.float64, -1.0, 1.0)
    keys = jax.random.split(key_starts, config.num_starts)
    errors = fits(target, keys, config.num_rounds)
    return {"rmse": jnp.min(errors), "spread": jnp.max(errors) - jnp.min(errors), "zero": jnp.sqrt(jnp.mean(target**2))}


def errors(record: Record) -> str:
    """Median and range for each size, beside the zero matrix."""
    rows = []
    for bits in record.config["bits"]:
        values = record.values("rmse", bits=bits)
        if len(values):
            row = [2**bits, float(np.median(values)), float(values.min()), float(values.max())]
            zero = float(np.median(record.values("zero", bits=bits)))
            rows.append([str(row[0]), str(len(values)), *row[1:], zero])
    return table(["D", "matrices", "median", "least", "largest", "zero matrix"], rows)


def picture(record: Record):
    """Every matrix's error, the medians, and the error of the zero matrix."""
    figure, axes = panels(1, 1, width=5.2, height=3.2)
    ax = axes[0, 0]
    sizes = [bits for bits in record.config["bits"] if len(record.rows(bits=bits))]
    for bits in sizes:
        values = record.values("rmse", bits=bits)
        shift = np.linspace(-0.16, 0.16, len(values)) if len(values) > 1 else np.zeros(1)
        ax.plot(bits + shift, values, "o", color=SERIES[1], markersize=2.6, alpha=0.8, markeredgewidth=0)
    medians = [np.median(record.values("rmse", bits=bits)) for bits in sizes]
    ax.plot(sizes, medians, color=INK, linewidth=1.1, label="median")
    ax.axhline(1 / np.sqrt(3), color=SERIES[5], linewidth=0.9, linestyle="--", label="zero matrix")
    ax.set_xticks(sizes, [str(2**bits) for bits in sizes])
    ax.set_ylim(0, 0.65)
    ax.set_xlabel("D", color=INK, fontsize=9)
    ax.set_ylabel("least root mean squared error", color=INK, fontsize=9)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


EXPERIMENT = Experiment(
    name="walsh_hadamard/figure_2",
    config=Config(),
    smoke=Config(seeds=(0,), bits=(1, 3), num_starts=2, num_rounds=10),
    pieces=pieces,
    measure=measure,
    tables={"errors": errors},
    pictures={"errors": picture},
)

if __name__ == "__main__":
    main(EXPERIMENT)
