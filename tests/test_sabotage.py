"""Every planted fault of the sabotage table must be caught."""

import jax
import pytest

from tests import sabotage


@pytest.mark.slow
@pytest.mark.parametrize("row", sabotage.ROWS, ids=lambda row: row.name)
def test_planted_fault_is_caught(row, key, monkeypatch):
    """A check that would pass on broken code."""
    row.plant(monkeypatch)
    with pytest.raises((AssertionError, jax.errors.KeyReuseError)):
        row.check(key)
