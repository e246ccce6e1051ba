"""Hostile cases meet the library as a user does: without the tests' checks of types, and with JAX's own settings."""

import jaxtyping
import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if "hostile" in item.path.parts:
            item.add_marker(pytest.mark.relaxed)


@pytest.fixture(autouse=True)
def _as_a_user():
    """Switch off the checks of annotations, which would refuse before the library does."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
