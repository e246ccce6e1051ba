"""Tables of users, read with pandas into named numeric columns."""

from geodax.app.tables.read import Table, match_columns, read_table

__all__ = ["Table", "match_columns", "read_table"]
