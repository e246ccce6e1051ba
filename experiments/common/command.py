"""The command line that all experiments share."""

import argparse
import dataclasses
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import jax

from experiments.common.experiment import RESULTS, Experiment, run


def main(experiment: Experiment, arguments: list[str] | None = None) -> None:
    """Run an experiment in one thread, and print its tables.

    Args:
        experiment: The experiment.
        arguments: Those of the command line; None takes the process's own.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{experiment.name.replace('/', '.')}",
        description="Finished pieces are kept in a JSON file and not run again. Stop it, or kill it, whenever you like; "
        "the same command goes on. Started twice, the two share the work.",
    )
    parser.add_argument(
        "--smoke", action="store_true", help="small sizes, into a temporary folder unless --results is given"
    )
    parser.add_argument("--results", type=Path, help=f"folder of the JSON files (default: {RESULTS})")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="LABEL=VALUE",
        help="run only the pieces with these labels, such as hidden=400 metric=Monge,Shampoo",
    )
    numbers = [n for n in experiment.may_change if n == "seeds" or isinstance(getattr(experiment.config, n), int)]
    for name in numbers:
        kind = "so many seeds: 0, 1, ..." if name == "seeds" else f"the configuration's {name.replace('_', ' ')}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=kind)
    if experiment.measure_seeds is not None:
        parser.add_argument(
            "--together", type=int, default=1, help="seeds that run side by side: 1 on a processor, all on a GPU"
        )
    options = parser.parse_args(arguments)
    os.environ.setdefault("NPROC", "1")  # threads of XLA's pool, read when the first array is made
    jax.config.update("jax_enable_x64", experiment.double)
    jax.config.update("jax_disable_most_optimizations", options.smoke)  # small sizes take longer to compile than to run
    # repetitions of a timed piece compile the same program
    cache = Path(tempfile.gettempdir()) / f"geodax-experiments-cache-{os.getuid() if hasattr(os, 'getuid') else 0}"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    results = options.results or (Path(tempfile.mkdtemp(prefix="geodax-smoke-")) if options.smoke else RESULTS)
    config = experiment.smoke if options.smoke else experiment.config
    changed = {name: getattr(options, name) for name in numbers if getattr(options, name) is not None}
    if changed.get("seeds", 1) < 1:
        parser.error(f"--seeds is a number of seeds, at least 1, found {changed['seeds']}")
    if "seeds" in changed:
        changed["seeds"] = tuple(range(changed["seeds"]))
    config = dataclasses.replace(config, **changed)
    only = dict(_choice(text) for text in options.only)
    record = run(experiment, config, results=results, only=only, together=getattr(options, "together", 1))
    for name, table in experiment.tables.items():
        print(f"\n{name}\n\n{table(record)}")


def _choice(text: str) -> tuple[str, list[Any]]:
    """``metric=Monge,Shampoo`` as a label and the values it may have; a comma before a space belongs to its value."""
    name, equals, values = text.partition("=")
    if not equals:
        raise SystemExit(f"--only takes LABEL=VALUE, such as hidden=400, found {text!r}.")

    def value(word: str) -> Any:
        try:
            return json.loads(word)
        except json.JSONDecodeError:
            return word

    return name, [value(word) for word in re.split(",(?! )", values)]
