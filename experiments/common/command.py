"""The command line that all experiments share."""

import argparse
import os
import tempfile
from pathlib import Path

import jax

from experiments.common.experiment import RESULTS, Experiment, run


def main(experiment: Experiment, arguments: list[str] | None = None) -> None:
    """Run an experiment in one thread and double precision, and print its tables.

    Args:
        experiment: The experiment.
        arguments: Those of the command line; None takes the process's own.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{experiment.name.replace('/', '.')}",
        description="Finished pieces are kept in a JSON file and not run again.",
    )
    parser.add_argument(
        "--smoke", action="store_true", help="small sizes, into a temporary folder unless --results is given"
    )
    parser.add_argument("--results", type=Path, help=f"folder of the JSON files (default: {RESULTS})")
    options = parser.parse_args(arguments)
    # read when the first array is made
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    jax.config.update("jax_enable_x64", True)
    # repetitions of a timed piece compile the same program
    cache = Path(tempfile.gettempdir()) / f"geodax-experiments-cache-{os.getuid() if hasattr(os, 'getuid') else 0}"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    results = options.results or (Path(tempfile.mkdtemp(prefix="geodax-smoke-")) if options.smoke else RESULTS)
    record = run(experiment, experiment.smoke if options.smoke else experiment.config, results=results)
    for name, table in experiment.tables.items():
        print(f"\n{name}\n\n{table(record)}")
