"""Cases of parametrised tests that run in the slow suite only."""

import functools

import pytest

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
