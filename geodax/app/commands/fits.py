"""``geodax fit MODEL FILE``: one command for each model."""

from collections.abc import Callable
from typing import Annotated, Any

from tyro.conf import Fixed, OmitArgPrefixes, Suppress, arg
from tyro.extras import SubcommandApp

from geodax.app.commands.options import HERE, NEW, DialectArgument, File, NewRunArgument, WhereArgument
from geodax.app.commands.terminal import saying, show
from geodax.app.families import FAMILIES, Family
from geodax.app.tables.dialect import FOUND

_HELP = """{summary}

Args:
    file: {file}
    run: The new run.
    options: Options of the model.
    columns: {columns}
    where: Devices and processes.
    dialect: Format of the file, where it should not be detected.
"""

fit = SubcommandApp()


def _command(family: Family) -> Callable[..., None]:
    """Make the command of a family."""
    defaults = family.options()
    options_type: Any = Annotated[OmitArgPrefixes[family.options], arg(name="")]
    columns_type: Any = tuple[str, ...] | None
    if not family.columns:
        columns_type = Suppress[Fixed[columns_type]]

    def command(
        file: File,
        run: NewRunArgument = NEW,
        options: options_type = defaults,  # pyright: ignore[reportInvalidTypeForm]
        columns: columns_type = None,  # pyright: ignore[reportInvalidTypeForm]
        where: WhereArgument = HERE,
        dialect: DialectArgument = FOUND,
    ) -> None:
        from geodax.app.run_folder.actions import fit_run

        where.join()
        how = {"overwrite": run.overwrite, "columns": columns, "dialect": dialect, **where.how(run.progress)}
        show(fit_run(file, options, run.out, seed=run.seed, say=saying(as_json=run.json), **how), as_json=run.json)

    command.__doc__ = _HELP.format(**family._asdict())
    return command


for _name, _family in FAMILIES.items():
    fit.command(name=_name)(_command(_family))
