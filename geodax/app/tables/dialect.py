"""The format of a table, as far as it is given rather than detected."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

_Any = TypeVar("_Any", bound="Dialect")

BLANK = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "?")
"""Values of missing cells in text columns."""

MISSING = (*BLANK, ".", "-")
"""Values of missing cells in numeric columns."""


class Separators(NamedTuple):
    """The separators inside numbers.

    Attributes:
        decimal: A point or a comma; None if no number of the table shows it.
        thousands: The separator between groups of three digits; None if no number shows one.
    """

    decimal: str | None = None
    thousands: str | None = None


NOTHING_SHOWN = Separators()
"""No number shows a separator."""

POINT = Separators(".")
"""A decimal point and no grouping."""


@dataclasses.dataclass(frozen=True)
class Dialect:
    """The format of a table: arguments of :func:`geodax.app.tables.read.read_table` as command options."""

    delimiter: str | None = None
    """Delimiter between cells, tab for a tab; detected by default."""
    decimal: str | None = None
    """Decimal separator, a point or a comma; detected by default."""
    thousands: str | None = None
    """Separator between groups of three digits, a comma or a point; detected by default if unambiguous."""
    encoding: str | None = None
    """Encoding of the file, such as latin-1; detected by default."""
    header: bool | None = None
    """Whether the first line holds names; detected by default."""
    sheet: str | None = None
    """Sheet of an Excel workbook; by default the first that holds a table."""
    missing: tuple[str, ...] = ()
    """Values of missing cells, besides the usual ones such as empty, NA, n/a and NULL."""

    @property
    def blank(self) -> tuple[str, ...]:
        """Values of missing cells in text columns."""
        return (*BLANK, *self.missing)

    def over(self, other: _Any) -> _Any:
        """Combine this dialect, whose options take precedence, with another, whose type the result has.

        One of the other's two separators is ignored if it equals the other separator given here.
        """
        said = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if getattr(self, f.name) != f.default}
        for name, rival in (("decimal", "thousands"), ("thousands", "decimal")):
            if name in said and rival not in said and getattr(other, rival) == said[name]:
                said[rival] = None
        return dataclasses.replace(other, **said)

    def options(self) -> dict[str, Any]:
        """Return arguments of :func:`geodax.app.tables.read.read_table`."""
        delimiter = "\t" if self.delimiter in ("tab", r"\t") else self.delimiter
        return dataclasses.asdict(self) | {"delimiter": delimiter, "missing": (*MISSING, *self.missing)}


@dataclasses.dataclass(frozen=True)
class RunDialect(Dialect):
    """The format of a run's tables: what was given, and what the fitted table has shown."""

    earlier: Separators = NOTHING_SHOWN
    """The separators that the fitted table has shown."""
    shown: list[Separators] = dataclasses.field(default_factory=list)
    """Receives the separators of each table read with this dialect."""
    earlier_forms: Mapping[str, str] | None = None
    """How columns of the fitted table were converted to numbers; None if that is unknown."""
    forms: dict[str, str] = dataclasses.field(default_factory=dict)
    """Receives how columns of the tables read with this dialect were converted to numbers."""

    def options(self) -> dict[str, Any]:
        more = ("earlier", "shown", "earlier_forms", "forms")
        return super().options() | {name: getattr(self, name) for name in more}


FOUND = Dialect()
"""Everything is detected."""
