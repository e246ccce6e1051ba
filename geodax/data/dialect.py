"""How a table is written, where that is not left to be found out."""

import dataclasses
from typing import Any

BLANK = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "?")
"""What a missing cell may hold in a column of text."""

MISSING = (*BLANK, ".", "-")
"""What a missing cell may hold in a column of numbers."""


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a table is written: the arguments of :func:`geodax.data.read_table` as options of a command."""

    delimiter: str | None = None
    """Sign between cells, tab for a tab; found if left out."""
    decimal: str = "."
    """Decimal sign, a point or a comma; commas that can only be decimal ones are read so in any case."""
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

    def over(self, other: "Dialect") -> "Dialect":
        """What is said here, and elsewhere what another one says."""
        said = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if getattr(self, f.name) != f.default}
        return dataclasses.replace(other, **said)

    def options(self) -> dict[str, Any]:
        """Arguments of :func:`geodax.data.read_table`."""
        delimiter = "\t" if self.delimiter in ("tab", r"\t") else self.delimiter
        return dataclasses.asdict(self) | {"delimiter": delimiter, "missing": (*MISSING, *self.missing)}


FOUND = Dialect()
"""Nothing is said: everything is found out."""
