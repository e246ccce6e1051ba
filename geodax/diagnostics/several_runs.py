"""Draws of several runs of one sampler as those of one run, and chains that two of them have in common."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from geodax.diagnostics.convergence import MINIMUM_DRAWS
from geodax.diagnostics.finding import Finding
from geodax.run.blocks import is_still
from geodax.run.draws import open_draws

_COUNTS = (
    "num_divergences",
    "num_integration_steps",
    "num_warmup_integration_steps",
    "compile_seconds",
    "sampling_seconds",
)
_SETTINGS = ("num_warmup", "thinning")


def join_chains(runs: Any) -> xr.DataTree:
    """Join the chains of several runs of one sampler, such as the jobs of an array, for common diagnostics.

    Args:
        runs: A list of results of :func:`geodax.sample`, or of their stores or run folders, with the same variables and
            equal numbers of draws. All draws are read.

    Returns:
        Draws in the layout of one run. Chains are numbered in the order of the runs; counts and seconds in the
        attributes are the sums.

    Raises:
        TypeError: If ``runs`` is no sequence of runs.
        ValueError: If the runs differ in variables, shapes, data, warm-up or thinning, or if two chains have the same
            draws, as those of two jobs with one random key.
    """
    if isinstance(runs, str | Path | xr.DataTree) or not isinstance(runs, Sequence) or not runs:
        raise TypeError("join_chains: expected a list of the results of gx.sample, or of their folders.")
    trees = [open_draws(run) if isinstance(run, str | Path) else run for run in runs]
    for number, tree in enumerate(trees):
        if not isinstance(tree, xr.DataTree) or "posterior" not in tree.children:
            raise TypeError(f"join_chains: run {number} is no result of gx.sample, found a {type(tree).__name__}.")
    groups = [name for name in trees[0].children if all(name in tree.children for tree in trees)]
    _require_alike(trees, [name for name in groups if name != "adaptation"])
    joined: dict[str, xr.Dataset] = {}
    for name in groups:
        parts = [tree[name].to_dataset() for tree in trees]
        if any(_shapes(part) != _shapes(parts[0]) for part in parts):  # adaptation of other numbers of directions
            continue
        if "chain" not in parts[0].dims:  # data, such as observed_data
            joined[name] = _common(name, parts)
            continue
        bare = [part.drop_vars("chain", errors="ignore") for part in parts]
        whole = xr.concat(bare, dim="chain", data_vars="minimal", coords="minimal", compat="override", join="override")
        if name != "adaptation":
            whole = whole.assign_coords(chain=np.arange(whole.sizes["chain"]))
        joined[name] = whole
    for repeated in repeated_chains({str(name): values for name, values in joined["posterior"].data_vars.items()}):
        raise ValueError(f"join_chains: {repeated.detail} {repeated.advice}")
    attributes = dict(trees[0].attrs)
    attributes |= {
        name: sum(tree.attrs[name] for tree in trees) for name in _COUNTS if all(name in tree.attrs for tree in trees)
    }
    tree = xr.DataTree.from_dict(joined)
    tree.attrs = attributes
    return tree


def repeated_chains(draws: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each group of chains with the same draws, which effective sample sizes count several times.

    Draws on disk are read where last draws are equal.
    """
    moving = [
        values
        for values in draws.values()
        if 0 not in values.shape and np.dtype(values.dtype).kind in "fc" and not is_still(values).any()
    ]
    if not moving:
        return

    def bytes_of(chain: int, places: Any) -> bytes:
        return b"".join(np.ascontiguousarray(values[chain, places]).tobytes() for values in moving)

    num_chains, num_draws = moving[0].shape[:2]
    groups: dict[bytes, list[int]] = {}
    for chain in range(num_chains):
        groups.setdefault(bytes_of(chain, num_draws - 1), []).append(chain)
    for first, *others in (chains for chains in groups.values() if len(chains) > 1):
        whole = bytes_of(first, slice(None))
        same = [chain for chain in others if bytes_of(chain, slice(None)) == whole]
        # few values, such as those of an indicator, may be the same by chance
        columns = (np.asarray(values[first]).reshape(num_draws, -1)[:, 0] for values in moving)
        if same and max(len(np.unique(column)) for column in columns) >= MINIMUM_DRAWS:
            yield Finding(
                "severe",
                "Chains that repeat each other",
                f"Chains {', '.join(map(str, [first, *same]))} have the same draws, bit for bit, so that effective "
                "sample sizes count them several times; no two chains should.",
                "Give each run a random key of its own, such as jax.random.key(number of the job), and leave copies "
                "of a run out.",
            )


def _common(name: str, parts: Sequence[xr.Dataset]) -> xr.Dataset:
    for number, part in enumerate(parts):
        if not part.equals(parts[0]):
            raise ValueError(f"join_chains: run {number} has other {name} than run 0; join runs of one posterior.")
    return parts[0]


def _shapes(group: xr.Dataset) -> dict[str, tuple]:
    return {str(name): (*map(str, v.dims), *v.shape[1:]) for name, v in group.data_vars.items()}


def _require_alike(trees: Sequence[xr.DataTree], groups: Sequence[str]) -> None:
    """Raise ValueError unless all runs have the settings, variables and shapes of the first."""
    for number, tree in enumerate(trees[1:], start=1):
        for name in _SETTINGS:
            before, found = trees[0].attrs.get(name), tree.attrs.get(name)
            if before != found:
                raise ValueError(f"join_chains: run 0 has {name}={before}, run {number} has {found}.")
        for name in groups:
            before, found = _shapes(trees[0][name].to_dataset()), _shapes(tree[name].to_dataset())
            names = [f"{name}.{v}" for v in {**before, **found} if before.get(v) != found.get(v)]
            if names:
                sizes = [dict(t[name].sizes) for t in (trees[0], tree)]
                raise ValueError(
                    f"join_chains: run {number} differs from run 0 in {', '.join(sorted(names)[:5])}: sizes {sizes[1]} "
                    f"and {sizes[0]}. Join runs of one sampler with equal numbers of draws; a longer one is cut by "
                    "run.isel(draw=slice(...))."
                )
