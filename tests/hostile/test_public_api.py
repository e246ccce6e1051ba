"""Every public name works, or refuses in a documented type and in words of the library; never from inside JAX or NumPy."""

import hypothesis
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import geodax as gx
from geodax.geometry.hadamard import fwht
from tests.hostile import judge, values
from tests.hostile.surface import ENTRIES, Case, cases

CHEAP = [entry for entry in ENTRIES if not entry.is_costly]
COSTLY = [entry for entry in ENTRIES if entry.is_costly]
QUICK = hypothesis.settings(max_examples=200, suppress_health_check=list(hypothesis.HealthCheck), deadline=None)


def _fine(case: Case) -> None:
    verdict = judge.judged(case, validators=case.entry.validators)
    assert verdict.is_fine, f"{case!r}: {verdict.outcome}: {verdict.error}: {verdict.message}"


@pytest.mark.thorough
@QUICK
@hypothesis.given(case=cases(CHEAP))
def test_odd_arguments_work_or_are_refused(case):
    _fine(case)


@pytest.mark.slow
@pytest.mark.parametrize("entry", COSTLY, ids=lambda entry: entry.name)
def test_odd_arguments_of_what_compiles(entry):
    @hypothesis.settings(QUICK, max_examples=25)
    @hypothesis.given(case=cases([entry]))
    def run(case):
        _fine(case)

    run()


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_surface_works(entry):
    """With the arguments from which the odd ones differ: else a refusal would mean nothing."""
    good = {name: argument.good for name, argument in entry.arguments.items()}
    assert judge.judged(Case(entry, good, ()), validators=entry.validators).outcome == "works"


@hypothesis.settings(QUICK, max_examples=30)
@hypothesis.given(
    layout=st.sampled_from(["fortran", "strided", "reversed", "read-only", "list", "jax", "big-endian"]),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_layout_does_not_matter(layout, dtype):
    """The same numbers in another layout give the same results, and are left as they were."""
    x = values.made((4, 8), dtype, "noise")
    odd = values.laid_out(x.copy(), layout)
    before = np.array(odd)
    pairs = [(fwht(jnp.asarray(x)), fwht(odd if layout != "list" else jnp.asarray(x)))]
    p = np.abs(x) / np.abs(x).sum(axis=1, keepdims=True)
    y = np.array([0, 1, 2, 3])
    pairs.append((gx.scores.brier(p, y), gx.scores.brier(values.laid_out(p.copy(), layout), y)))
    if layout != "list":  # whose numbers are in double precision
        pairs.append((gx.transforms.Polar(4, 2).forward(x[0]), gx.transforms.Polar(4, 2).forward(odd[0])))
    for plain, found in pairs:  # sums may be taken in another order
        eps = np.finfo(np.asarray(plain).dtype).eps
        np.testing.assert_allclose(np.asarray(plain), np.asarray(found), rtol=8 * eps, atol=8 * eps)
    np.testing.assert_array_equal(np.array(odd), before)


def test_a_judge_that_sees_nothing_would_pass_everything():
    """Errors from inside JAX and NumPy, undocumented types and endless loops are told from the library's refusals."""

    def endless():
        while True:
            pass

    outcomes = {
        "refused": lambda: gx.Stiefel(metric="x"),
        "works": gx.Stiefel,
        "error from inside another library": lambda: jnp.zeros(2) @ jnp.zeros(3),
        "error of an undocumented type": lambda: [][0],
    }
    for outcome, call in outcomes.items():
        assert judge.judged(call).outcome == outcome
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "SECONDS", 0.2)
        assert judge.judged(endless).outcome == "hangs"
