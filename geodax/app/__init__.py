"""The command line: argument parsing and printing.

geodax fit pca data.csv --n-components 2 --out runs/pca
geodax fit eigenmodel network.csv --rank 2 --out runs/eigenmodel
geodax fit network contacts.csv --window 660 --out runs/network
geodax fit unit-network data.csv --target y --n-hidden 4 --out runs/network
geodax fit cca patients.csv --group injury --first-view "protein*" --out runs/cca
geodax fit classifier data.csv --target y --out runs/classifier
geodax fit regressor data.csv --target y --out runs/regressor
geodax fit factorization ratings.csv --rank 10 --out runs/factorization
geodax report runs/pca
geodax resume runs/pca
geodax predict runs/pca new.csv
geodax data list
geodax data fetch mnist
geodax citation nuts
"""

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Command-line words; None takes those of the process.

    Returns:
        The exit code, see :func:`geodax.app.commands.entry.run_command`.
    """
    try:  # the imports take a second or more, and can be interrupted
        from geodax.app.commands.entry import run_command
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    return run_command(arguments)


__all__ = ["main"]
