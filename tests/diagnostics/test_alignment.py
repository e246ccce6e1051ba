"""Invariant functions and alignment of orthonormal matrices: planted ambiguities, known angles."""

import inspect

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from geodax.diagnostics.alignment import (
    align_angles,
    align_rotation,
    align_signs,
    invariant_draws,
    mean_orthonormal,
    mean_subspace,
    principal_angles,
    projector,
    subspace_distance,
)
from geodax.diagnostics.findings import ess, rhat
from geodax.diagnostics.subspaces import leading_eigenvectors

seeds = st.integers(0, 2**32 - 1)
fields = pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])


def normal(generator, shape, is_complex=False):
    x = generator.standard_normal(shape)
    return x + 1j * generator.standard_normal(shape) if is_complex else x


def orthonormal(generator, shape, is_complex=False):
    return np.linalg.qr(normal(generator, shape, is_complex))[0]


def draws_around(generator, centre, spread, batch):
    """Independent orthonormal matrices around a centre."""
    noise = normal(generator, (*batch, *centre.shape), np.iscomplexobj(centre))
    left, _, right = np.linalg.svd(centre + spread * noise, full_matrices=False)
    return left @ right


def adjoint(x):
    return np.swapaxes(x.conj(), -1, -2)


# Subspaces


@fields
@given(seed=seeds, p=st.integers(1, 4), extra=st.integers(0, 3))
def test_the_projector_projects_and_does_not_see_rotations(is_complex, seed, p, extra):
    generator = np.random.default_rng(seed)
    x = orthonormal(generator, (3, p + extra, p), is_complex)
    rotation = orthonormal(generator, (3, p, p), is_complex)
    projected = projector(x)
    np.testing.assert_allclose(projected @ x, x, atol=1e-13)
    np.testing.assert_allclose(projected @ projected, projected, atol=1e-13)
    np.testing.assert_allclose(np.trace(projected, axis1=-2, axis2=-1), p, atol=1e-13)
    np.testing.assert_allclose(projector(x @ rotation), projected, atol=1e-13)
    assert p + extra == p or np.abs(projector(orthonormal(generator, x.shape)) - projected).max() > 1e-6


@fields
@pytest.mark.parametrize(
    "angles",
    [(0.0, 1e-12, 1e-6), (1e-9, 0.3, 1.2), (np.pi / 4, 1.0, np.pi / 2), (1.5, np.pi / 2 - 1e-9, np.pi / 2)],
)
def test_planted_principal_angles_are_found_to_rounding(is_complex, angles):
    generator = np.random.default_rng(3)
    frame = orthonormal(generator, (8, 6), is_complex)
    x = frame[:, :3]
    y = x * np.cos(angles) + frame[:, 3:] * np.sin(angles)
    rotation, other = orthonormal(generator, (2, 3, 3), is_complex)
    found = principal_angles(x @ rotation, y @ other)
    np.testing.assert_allclose(found, angles, atol=4e-15, rtol=0)
    np.testing.assert_allclose(
        subspace_distance(x @ rotation, y @ other), np.linalg.norm(np.sin(angles)), rtol=1e-9, atol=4e-15
    )


@fields
@given(seed=seeds, p=st.integers(1, 4), extra=st.integers(0, 3))
def test_the_distance_is_a_symmetric_distance_between_projectors(is_complex, seed, p, extra):
    x, y, z = orthonormal(np.random.default_rng(seed), (3, p + extra, p), is_complex)
    distance = subspace_distance(x, y)
    np.testing.assert_allclose(distance, np.linalg.norm(projector(x) - projector(y)) / np.sqrt(2), atol=1e-12)
    np.testing.assert_allclose(distance, subspace_distance(y, x), atol=1e-12)
    assert distance <= subspace_distance(x, z) + subspace_distance(z, y) + 1e-12
    assert distance <= np.sqrt(p) + 1e-12


def test_angles_and_distances_broadcast():
    x = orthonormal(np.random.default_rng(0), (4, 5, 7, 2))
    assert principal_angles(x, x[0, 0]).shape == (4, 5, 2)
    distance = subspace_distance(x[:, None, 0], x[None, :, 0])
    assert distance.shape == (4, 4)
    np.testing.assert_allclose(np.diag(distance), 0, atol=1e-14)
    np.testing.assert_allclose(distance[1, 2], subspace_distance(x[1, 0], x[2, 0]))


@fields
def test_the_mean_subspace_is_found_whatever_basis_the_draws_have(is_complex):
    generator = np.random.default_rng(5)
    centre = orthonormal(generator, (6, 2), is_complex)
    draws = draws_around(generator, centre, 0.05, (4, 500))
    rotations = orthonormal(generator, (4, 500, 2, 2), is_complex)
    mean = mean_subspace(draws @ rotations)
    assert subspace_distance(mean, centre) < 0.02
    np.testing.assert_allclose(adjoint(mean) @ mean, np.eye(2), atol=1e-13)
    average = subspace_distance(draws, mean)
    assert np.mean(average**2) < np.mean(subspace_distance(draws, centre) ** 2)


# Signs


@given(seed=seeds, p=st.integers(1, 4), extra=st.integers(0, 3))
def test_planted_signs_are_undone_exactly(seed, p, extra):
    generator = np.random.default_rng(seed)
    centre = orthonormal(generator, (p + extra, p))
    draws = draws_around(generator, centre, 0.02, (2, 6))
    planted = generator.choice([-1.0, 1.0], (2, 6, p))
    aligned, signs = align_signs(draws * planted[..., None, :], reference=centre)
    np.testing.assert_array_equal(aligned, draws)
    np.testing.assert_array_equal(signs, planted)


@given(seed=seeds)
def test_without_a_reference_the_aligned_draws_do_not_depend_on_the_signs(seed):
    generator = np.random.default_rng(seed)
    centre = orthonormal(generator, (5, 3))
    draws = draws_around(generator, centre, 0.1, (2, 20))
    planted = generator.choice([-1.0, 1.0], (2, 20, 3))
    aligned, _ = align_signs(draws)
    np.testing.assert_array_equal(align_signs(draws * planted[..., None, :])[0], aligned)
    mean = aligned.mean(axis=(0, 1))
    assert ((aligned * mean).sum(axis=-2) > 0).all()


def test_signs_are_robust_when_the_first_draw_is_far_out_and_most_draws_are_flipped():
    generator = np.random.default_rng(11)
    centre = orthonormal(generator, (10, 1))
    draws = draws_around(generator, centre, 0.1, (1, 400))
    draws[0, 0] = np.linalg.svd(np.c_[centre, draws[0, 1]])[0][:, 5:6]
    planted = generator.choice([-1.0, 1.0], (1, 400, 1), p=[0.9, 0.1])
    aligned, _ = align_signs(draws * planted[..., None, :])
    agreement = (aligned[0, 1:] * centre).sum(axis=(-2, -1))
    assert np.abs(np.sign(agreement).sum()) == 399


def test_complex_phases_are_undone_and_the_product_with_the_scores_stays():
    generator = np.random.default_rng(2)
    centre = orthonormal(generator, (5, 3), is_complex=True)
    draws = np.broadcast_to(centre, (2, 50, 5, 3))
    phases = np.exp(1j * generator.uniform(0, 2 * np.pi, (2, 50, 3)))
    scores = normal(generator, (2, 50, 7, 3), is_complex=True)
    turned = draws * phases[..., None, :]
    aligned, signs = align_signs(turned, reference=centre)
    np.testing.assert_allclose(aligned, draws, atol=1e-14)
    np.testing.assert_allclose(np.abs(signs), 1, atol=1e-14)
    before = turned @ np.swapaxes(scores, -1, -2)
    after = aligned @ np.swapaxes(scores * signs.conj()[..., None, :], -1, -2)
    np.testing.assert_allclose(after, before, atol=1e-13)
    assert np.ptp(align_signs(turned)[0], axis=(0, 1)).__abs__().max() < 1e-6


def test_aligned_draws_keep_their_dtype():
    draws = orthonormal(np.random.default_rng(0), (2, 5, 4, 2)).astype(np.float32)
    for align in (align_signs, align_rotation):
        aligned, transformation = align(draws)
        assert aligned.dtype == transformation.dtype == np.float32
    aligned, signs = align_signs(draws)
    np.testing.assert_array_equal(aligned * signs[..., None, :], draws)


def test_chains_in_different_sign_modes_agree_once_aligned():
    generator = np.random.default_rng(7)
    centre = np.array([[1, 1], [1, -1], [1, 1], [1, -1]]) / 2
    draws = draws_around(generator, centre, 0.05, (2, 1000))
    draws[1] *= [-1, 1]
    raw = rhat(draws)
    assert raw[:, 0].min() > 1.5
    assert raw[:, 1].max() < 1.01
    aligned, signs = align_signs(draws)
    assert rhat(aligned).max() < 1.01
    assert ess(aligned).min() > 1500
    np.testing.assert_array_equal(signs[0] * signs[1], np.broadcast_to([-1, 1], (1000, 2)))
    for values in invariant_draws(draws, up_to="signs").values():
        assert rhat(values).max() < 1.01


# Names of axes


@fields
@pytest.mark.parametrize("align", [align_signs, align_rotation])
def test_arrays_with_names_keep_them(is_complex, align):
    """The draws theirs, and what they are multiplied with those of the axes that it has."""
    generator = np.random.default_rng(12)
    centre = orthonormal(generator, (4, 2), is_complex)
    values = draws_around(generator, centre, 0.05, (2, 9)) @ np.diag([-1, 1])
    draws = xr.DataArray(
        values.astype(np.complex64 if is_complex else np.float32),
        dims=("chain", "draw", "variable", "component"),
        coords={"draw": np.arange(10, 19), "variable": list("abcd"), "component": ["i", "ii"]},
        name="W",
    )
    expected, expected_factor = align(draws.values, centre)
    aligned, factor = align(draws, xr.DataArray(centre))
    xr.testing.assert_identical(aligned, draws.copy(data=expected))
    np.testing.assert_array_equal(factor.values, expected_factor)
    assert factor.dtype == aligned.dtype == draws.dtype
    xr.testing.assert_identical(factor["draw"], draws["draw"])
    xr.testing.assert_identical(factor["component"], draws["component"])
    if align is align_signs:
        xr.testing.assert_allclose(draws * factor, aligned)
    else:
        assert factor.dims == ("chain", "draw", "component", "aligned")
        np.testing.assert_allclose(xr.dot(draws, factor, dim="component"), expected, atol=1e-6)
    assert "W.angle" in invariant_draws(draws)
    assert "loadings.angle" in invariant_draws(draws, name="loadings")
    assert "x.angle" in invariant_draws(draws.rename(None))


# Rotations


@fields
@given(seed=seeds, p=st.integers(1, 4), extra=st.integers(0, 3))
def test_planted_rotations_are_undone(is_complex, seed, p, extra):
    generator = np.random.default_rng(seed)
    centre = orthonormal(generator, (p + extra, p), is_complex)
    planted = orthonormal(generator, (2, 6, p, p), is_complex)
    aligned, rotations = align_rotation(centre @ planted, reference=centre)
    np.testing.assert_allclose(aligned, np.broadcast_to(centre, aligned.shape), atol=1e-13)
    np.testing.assert_allclose(planted @ rotations, np.broadcast_to(np.eye(p), planted.shape), atol=1e-13)
    draws = draws_around(generator, centre, 0.05, (2, 6))
    np.testing.assert_allclose(
        align_rotation(draws @ planted, reference=centre)[0],
        align_rotation(draws, reference=centre)[0],
        atol=1e-12,
    )


@fields
def test_no_other_rotation_is_nearer_to_the_reference(is_complex):
    generator = np.random.default_rng(4)
    draws = normal(generator, (3, 6, 3), is_complex)
    reference = normal(generator, (6, 3), is_complex)
    aligned, _ = align_rotation(draws, reference=reference)
    least = np.linalg.norm(aligned - reference, axis=(-2, -1))
    others = draws @ orthonormal(generator, (500, 1, 3, 3), is_complex)
    assert (np.linalg.norm(others - reference, axis=(-2, -1)) >= least).all()
    small = normal(generator, (500, 1, 3, 3), is_complex)
    nearby = aligned @ np.linalg.qr(np.eye(3) + 1e-3 * (small - adjoint(small)))[0]
    assert (np.linalg.norm(nearby - reference, axis=(-2, -1)) >= least - 1e-9).all()


def test_rotated_chains_agree_once_aligned():
    generator = np.random.default_rng(8)
    draws = draws_around(generator, orthonormal(generator, (6, 3)), 0.05, (2, 1000))
    draws[1] = draws[1] @ orthonormal(generator, (3, 3))
    assert np.median(rhat(draws)) > 1.5
    aligned, _ = align_rotation(draws)
    assert rhat(aligned).max() < 1.02
    for values in invariant_draws(draws).values():
        assert rhat(values).max() < 1.01


# Means


@fields
@pytest.mark.parametrize("up_to", ["nothing", "signs", "rotation"])
def test_the_mean_is_the_nearest_orthonormal_matrix(is_complex, up_to):
    generator = np.random.default_rng(9)
    centre = orthonormal(generator, (6, 3), is_complex)
    draws = draws_around(generator, centre, 0.05, (2, 500))
    ambiguous = draws
    if up_to == "signs":
        ambiguous = draws * np.sign(generator.standard_normal((2, 500, 1, 3)))
    if up_to == "rotation":
        ambiguous = draws @ orthonormal(generator, (2, 500, 3, 3), is_complex)
    mean = mean_orthonormal(ambiguous, up_to=up_to)
    np.testing.assert_allclose(adjoint(mean) @ mean, np.eye(3), atol=1e-13)
    assert subspace_distance(mean, centre) < 0.03
    if up_to == "nothing":
        assert np.linalg.norm(mean - centre) < 0.03
    if up_to != "rotation":
        cosine = np.abs((mean.conj() * centre).sum(axis=0))
        np.testing.assert_allclose(cosine, 1, atol=1e-3)


def test_a_mean_that_is_not_unique_is_refused():
    x = orthonormal(np.random.default_rng(0), (4, 2))
    with pytest.raises(ValueError, match=r"smallest singular value is .*up_to='nothing'"):
        mean_orthonormal(np.stack([x, -x]), up_to="nothing")
    np.testing.assert_allclose(np.abs(mean_orthonormal(np.stack([x, -x]))), np.abs(x), atol=1e-13)


# Invariant draws


@fields
@pytest.mark.parametrize(
    ("shape", "up_to"),
    [(shape, up_to) for shape in [(6, 2), (5, 3), (3, 1)] for up_to in ("signs", "rotation")] + [((4, 4), "signs")],
)
def test_invariant_draws_do_not_see_the_ambiguity(is_complex, shape, up_to):
    generator = np.random.default_rng(6)
    n, p = shape
    draws = draws_around(generator, orthonormal(generator, shape, is_complex), 0.1, (2, 30))
    if up_to == "signs":
        ambiguous = draws * np.sign(generator.standard_normal((2, 30, 1, p)))
    else:
        ambiguous = draws @ orthonormal(generator, (2, 30, p, p), is_complex)
    expected = invariant_draws(draws, up_to=up_to, name="loadings")
    found = invariant_draws(ambiguous, up_to=up_to, name="loadings")
    assert expected.keys() == found.keys()
    for name, values in found.items():
        assert name.startswith("loadings.")
        assert values.shape[:2] == (2, 30)
        assert values.dtype == np.float64
        np.testing.assert_allclose(values, expected[name], atol=1e-7)
        assert np.ptp(values, axis=(0, 1)).min() > 1e-6, f"{name} says nothing: it is constant"
    if p < n:
        assert found["loadings.angle"].shape == (2, 30, min(p, n - p))
        np.testing.assert_allclose(
            np.linalg.norm(np.sin(found["loadings.angle"]), axis=-1), found["loadings.distance"], atol=1e-12
        )
        np.testing.assert_allclose(found["loadings.leverage"].sum(axis=-1), p, atol=1e-12)


@fields
@pytest.mark.parametrize(("batch", "up_to"), [((3,), "signs"), ((2, 3), "rotation")])
def test_each_matrix_of_a_plate_has_its_own_functions(is_complex, batch, up_to):
    generator = np.random.default_rng(13)
    draws = np.empty((2, 30, *batch, 5, 2), complex if is_complex else float)
    for place in np.ndindex(batch):
        of_place = draws_around(generator, orthonormal(generator, (5, 2), is_complex), 0.1, (2, 30))
        draws[(slice(None), slice(None), *place)] = of_place
    found = invariant_draws(draws, name="w", up_to=up_to)
    for place in np.ndindex(batch):
        expected = invariant_draws(draws[(slice(None), slice(None), *place)], name="w", up_to=up_to)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name][(slice(None), slice(None), *place)], values)


@pytest.mark.parametrize(("n", "p", "half_angle"), [(3, 1, 0.4), (100, 4, 0.4), (200, 1, 0.1)])
def test_quadratic_forms_tell_modes_apart_that_lie_opposite_the_mean(n, p, half_angle):
    generator = np.random.default_rng(10)
    frame = np.eye(n)[:, : p + 1]
    chains = []
    for angle in (half_angle, -half_angle):
        centre = frame[:, :p].copy()
        centre[:, p - 1] = np.cos(angle) * frame[:, p - 1] + np.sin(angle) * frame[:, p]
        chains.append(draws_around(generator, centre, 0.02, (1, 500))[0])
    draws = np.stack(chains) @ orthonormal(generator, (2, 500, p, p))
    invariant = invariant_draws(draws)
    assert rhat(invariant["x.distance"]) < 1.02
    assert rhat(invariant["x.quadratic_form"]).max() > 1.5


def test_invariant_draws_are_the_same_in_every_call():
    draws = orthonormal(np.random.default_rng(1), (2, 10, 6, 2))
    first, second = invariant_draws(draws), invariant_draws(draws.copy())
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


# Arguments that make no sense: the functions themselves, without the type checker of the tests around them


X = np.linalg.qr(np.random.default_rng(0).standard_normal((2, 5, 4, 2)))[0]


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (projector, (np.ones(3),), r"\(\.\.\., n, p\).*shape \(3,\)"),
        (projector, (np.ones((2, 3)),), r"n >= p.*shape \(2, 3\)"),
        (projector, (np.empty((0, 3, 2)),), r"at least one"),
        (mean_subspace, (np.where(X > 0.4, np.nan, X),), r"finite matrices, found \d+ entries"),
        (mean_subspace, (2 * X,), r"orthonormal columns, found .* 3\."),
        (mean_orthonormal, (2 * X,), r"orthonormal columns"),
        (principal_angles, (X, X[..., :1]), r"same dimension"),
        (subspace_distance, (X, X[..., :3, :1]), r"same dimension|orthonormal"),
        (align_signs, (X, X[0]), r"one reference of the draws' shape \(4, 2\)"),
        (align_rotation, (X, X[0, 0, :3]), r"one reference of the draws' shape \(4, 2\)"),
        (align_rotation, (X * np.inf,), r"finite"),
        (invariant_draws, (X[0],), r"\(chain, draw, \.\.\., n, p\)"),
        (invariant_draws, (X[:, :3],), r"at least 4 draws"),
        (invariant_draws, (orthonormal(np.random.default_rng(0), (2, 5, 3, 3)),), r"square matrices"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_senseless_arguments_are_refused_with_a_way_out(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(function)(*arguments)


def test_unknown_choices_are_refused():
    for function in (mean_orthonormal, invariant_draws):
        with pytest.raises(ValueError, match="'sign'"):
            inspect.unwrap(function)(X, up_to="sign")
    with pytest.raises(ValueError, match="num_directions must be at least 1"):
        invariant_draws(X, num_directions=0)


@pytest.mark.thorough
@pytest.mark.parametrize("num_columns", [300, 2000])
def test_eigenvectors_of_high_matrices_are_exact(num_columns):
    """Of few columns from their Gram matrix, of many by iteration; catches columns that are left out."""
    generator = np.random.default_rng(0)
    columns = generator.standard_normal((num_columns, 600)) * np.r_[9.0, 7.0, 5.0, np.ones(597)]
    expected = np.linalg.svd(columns.T)[0][:, :3]
    found = leading_eigenvectors(columns[..., None], 3)
    np.testing.assert_allclose(np.abs(np.sum(found * expected, axis=0)), 1.0, rtol=1e-9)


def test_means_of_many_large_matrices_are_of_draws_from_all_of_the_run(monkeypatch):
    """Catches a subset that is the beginning of the run."""
    monkeypatch.setattr("geodax.diagnostics.alignment._LEAST_AVERAGED", 10)
    monkeypatch.setattr("geodax.diagnostics.alignment._MOST_AVERAGED", 1)
    early, late = np.eye(5)[:, :1], np.eye(5)[:, 1:2]
    draws = np.concatenate([np.tile(early, (30, 1, 1)), np.tile(late, (70, 1, 1))])[None]
    cosine = invariant_draws(draws, up_to="signs")["x.column_cosine"][0, :, 0]
    assert cosine[-1] > 0.9 > 0.5 > cosine[0]


def test_angles_are_moved_to_their_circular_mean():
    angles = np.random.default_rng(3).normal((3.1, -0.4), 0.2, (4, 300, 2))
    wrapped = np.angle(np.exp(1j * angles))
    np.testing.assert_allclose(align_angles(wrapped) - angles, 0, atol=1e-12)
    labelled = align_angles(xr.DataArray(wrapped.astype(np.float32), dims=("chain", "draw", "x_dim_0"), name="x"))
    assert (labelled.name, labelled.dtype) == ("x", np.float32)
    np.testing.assert_allclose(labelled, angles, atol=1e-5)
    with pytest.raises(ValueError, match=r"of shape \(chain, draw"):
        inspect.unwrap(align_angles)(wrapped[0, :, 0])


def test_unit_vectors_are_not_taken_for_rows_of_matrices():
    """Catches signs of coordinates that are flipped in place of those of vectors."""
    vectors = orthonormal(np.random.default_rng(4), (4, 50, 5, 3, 1))[..., 0]
    for draws in (vectors, vectors[:, :, 0]):
        with pytest.raises(ValueError, match=r"unit vectors along the last axis.*x\[\.\.\., None\]"):
            align_signs(draws)
        align_signs(draws[..., None])
        for function in (invariant_draws, mean_orthonormal):
            with pytest.raises(ValueError, match=r"last axis holds unit vectors: pass x\[\.\.\., None\]"):
                inspect.unwrap(function)(draws)
    labelled = xr.DataArray(vectors[:, :, 0], dims=("chain", "draw", "x_dim_0"))
    for function in (align_signs, align_rotation, invariant_draws):
        with pytest.raises(ValueError, match="rows and columns last"):
            function(labelled)
    align_rotation(labelled.expand_dims("column", axis=-1))
