"""How a table is written, where that is not left to be found out."""

import dataclasses
from typing import Any, NamedTuple, TypeVar

_Any = TypeVar("_Any", bound="Dialect")

BLANK = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "?")
"""What a missing cell may hold in a column of text."""

MISSING = (*BLANK, ".", "-")
"""What a missing cell may hold in a column of numbers."""


class Separators(NamedTuple):
    """The signs inside numbers.

    Attributes:
        decimal: A point or a comma; None where no number of a table shows it.
        thousands: The sign between groups of three digits; None where no number shows one.
    """

    decimal: str | None = None
    thousands: str | None = None


NOTHING_SHOWN = Separators()
"""A table without numbers that show a separator, or none at all."""

POINT = Separators(".")
"""A decimal point, and no sign between groups."""


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a table is written: the arguments of :func:`geodax.app.tables.read.read_table` as options of a command."""

    delimiter: str | None = None
    """Sign between cells, tab for a tab; found if left out."""
    decimal: str | None = None
    """Decimal sign, a point or a comma; found if left out."""
    thousands: str | None = None
    """Sign between groups of three digits, a comma or a point; found if left out, where that is certain."""
    encoding: str | None = None
    """Encoding of the file, such as latin-1; found if left out."""
    header: bool | None = None
    """Whether the first line holds names; found if left out."""
    missing: tuple[str, ...] = ()
    """What a missing cell may hold, besides the usual signs such as nothing, NA, n/a and NULL."""

    @property
    def blank(self) -> tuple[str, ...]:
        """What a missing cell may hold in a column of text."""
        return (*BLANK, *self.missing)

    def over(self, other: _Any) -> _Any:
        """What is said here, and elsewhere what another one says.

        Args:
            other: Another one, whose type the result has. What it says of one of the two separators does not count
                where it would be the same sign as the other one that is said here.

        Returns:
            Both together.
        """
        said = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if getattr(self, f.name) != f.default}
        for name, rival in (("decimal", "thousands"), ("thousands", "decimal")):
            if name in said and rival not in said and getattr(other, rival) == said[name]:
                said[rival] = None
        return dataclasses.replace(other, **said)

    def options(self) -> dict[str, Any]:
        """Arguments of :func:`geodax.app.tables.read.read_table`."""
        delimiter = "\t" if self.delimiter in ("tab", r"\t") else self.delimiter
        return dataclasses.asdict(self) | {"delimiter": delimiter, "missing": (*MISSING, *self.missing)}


@dataclasses.dataclass(frozen=True)
class RunDialect(Dialect):
    """How the tables of a run are written: what was said, and what the table that was fitted has shown."""

    earlier: Separators = NOTHING_SHOWN
    """The separators that the table of the fit has shown."""
    shown: list[Separators] = dataclasses.field(default_factory=list)
    """Takes the separators that each table shows that is read with this."""

    def options(self) -> dict[str, Any]:
        """Arguments of :func:`geodax.app.tables.read.read_table`."""
        return super().options() | {"earlier": self.earlier, "shown": self.shown}


FOUND = Dialect()
"""Nothing is said: everything is found out."""
