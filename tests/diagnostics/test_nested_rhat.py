"""Nested R-hat, and superchains in a run, a summary and a check."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.diagnostics.findings import check, nested_rhat, rhat, summarize


def nested_normal(num_superchains, num_chains, num_draws, spreads, seed=0):
    """Draws with independent normal parts of the superchain, of the chain within it and of the draw."""
    rng = np.random.default_rng(seed)
    of_superchain, of_chain, of_draw = spreads
    parts = (
        of_superchain * rng.normal(size=(num_superchains, 1, 1))
        + of_chain * rng.normal(size=(num_superchains, num_chains, 1))
        + of_draw * rng.normal(size=(num_superchains, num_chains, num_draws))
    )
    return parts.reshape(num_superchains * num_chains, num_draws)


@pytest.mark.parametrize("spreads", [(0.0, 0.0, 1.0), (0.3, 0.0, 1.0), (0.2, 0.7, 1.0), (1.0, 0.5, 0.1)])
@pytest.mark.parametrize(("num_chains", "num_draws"), [(16, 1), (8, 5), (1, 20)])
def test_variance_components(spreads, num_chains, num_draws):
    """Catches a variance that is divided by the wrong number, or left out."""
    of_superchain, of_chain, of_draw = (s**2 for s in spreads)
    num_superchains = 4000
    found = nested_rhat(
        nested_normal(num_superchains, num_chains, num_draws, spreads),
        num_superchains=num_superchains,
        is_ranked=False,
    )
    of_means = of_chain + of_draw / num_draws
    between = of_superchain + of_means / num_chains
    within = (of_means if num_chains > 1 else 0.0) + (of_draw if num_draws > 1 else 0.0)
    # both variances are known to about sqrt(2 / 4000)
    assert abs((found**2 - 1) / (between / within) - 1) < 4 * np.sqrt(2 * 2 / num_superchains)


def test_the_formula_written_out():
    """Catches chains that are put into the wrong superchain."""
    draws = np.random.default_rng(1).normal(size=(6, 3)) + np.repeat([0.0, 1.0, 5.0], 2)[:, None]
    chain_means = [row.mean() for row in draws]
    pairs = [(0, 1), (2, 3), (4, 5)]
    between = np.var([(chain_means[i] + chain_means[j]) / 2 for i, j in pairs], ddof=1)
    within = np.mean(
        [
            np.var([chain_means[i], chain_means[j]], ddof=1) + (np.var(draws[i], ddof=1) + np.var(draws[j], ddof=1)) / 2
            for i, j in pairs
        ]
    )
    found = nested_rhat(draws, num_superchains=3, is_ranked=False)
    np.testing.assert_allclose(found, np.sqrt(1 + between / within), rtol=1e-12)


def test_every_variable_is_worked_on_alone():
    draws = np.stack([nested_normal(4, 8, 5, s, seed) for seed, s in enumerate([(0, 0, 1.0), (3.0, 0, 1.0)])], axis=-1)
    found = nested_rhat(draws, num_superchains=4)
    alone = [nested_rhat(draws[..., i], num_superchains=4) for i in range(2)]
    np.testing.assert_array_equal(found, alone)


def test_what_the_ranks_see():
    """Superchains that differ in scale alone, and starts of a Cauchy law that one draw hides from variances."""
    rng = np.random.default_rng(2)
    scales = np.where(np.arange(8) % 2, 0.2, 1.0)
    draws = (scales[:, None, None] * rng.normal(size=(8, 16, 10))).reshape(128, 10)
    assert nested_rhat(draws, num_superchains=8, is_ranked=False) < 1.05
    assert nested_rhat(draws, num_superchains=8) > 1.2


def test_short_chains_that_remember_their_starts_are_told_from_those_that_do_not():
    """R-hat of chains of four draws is high in any case; nested R-hat falls as the chains forget."""
    rng = np.random.default_rng(3)
    starts = np.repeat(5 * rng.normal(size=8), 64)
    chains, coefficient = [starts], 0.7
    for _ in range(40):
        chains.append(coefficient * chains[-1] + np.sqrt(1 - coefficient**2) * rng.normal(size=starts.size))
    path = np.stack(chains, axis=1)
    early, late = path[:, 1:5], path[:, 37:41]
    assert nested_rhat(early, num_superchains=8) > 1.3
    assert nested_rhat(late, num_superchains=8) < 1.01
    assert rhat(late) > 1.1


def test_where_nothing_can_be_said():
    draws = nested_normal(4, 4, 3, (0, 0, 1.0))
    assert np.isnan(nested_rhat(np.full_like(draws, 2.0), num_superchains=4))
    draws[3, 1] = np.nan
    assert np.isnan(nested_rhat(draws, num_superchains=4))
    apart = np.repeat(np.arange(4.0), 4)[:, None] * np.ones(3)
    assert np.isinf(nested_rhat(apart, num_superchains=4, is_ranked=False))


@pytest.mark.parametrize(
    ("num_superchains", "message"),
    [(0, "at least 2"), (1, "at least 2"), (3, "divide the number"), (32, "divide the number"), (True, "integer")],
)
def test_groups_that_do_not_fit_are_refused(num_superchains, message):
    with pytest.raises((TypeError, ValueError), match=f"nested_rhat: num_superchains must (be an?|be|) ?{message}"):
        nested_rhat(np.zeros((16, 5)), num_superchains=num_superchains)


def test_superchains_of_one_draw_are_refused():
    with pytest.raises(ValueError, match="16 superchains of one chain with 1 draws have no variance within"):
        nested_rhat(np.zeros((16, 1)), num_superchains=16)


class TestSummaryAndCheck:
    def test_the_column_is_nested(self):
        draws = {"x": nested_normal(8, 16, 2, (0.5, 0, 1.0)).astype(np.float32)}
        row = summarize(draws, num_superchains=8)["x"]
        assert row.rhat == nested_rhat(draws["x"], num_superchains=8)
        assert summarize(draws, num_superchains=2)["x"].rhat != row.rhat

    def test_short_chains_in_good_order(self):
        """20 draws a chain are too few for R-hat, and enough for nested R-hat with 64 chains in a superchain."""
        draws = {"x": nested_normal(4, 64, 20, (0, 0, 1.0))}
        assert check(draws, num_superchains=4) == []
        assert [f.title for f in check(draws)] == ["Too few draws to diagnose"]

    def test_disagreement_and_too_few_draws_are_found(self):
        apart = check({"x": nested_normal(4, 16, 20, (1.0, 0, 1.0))}, num_superchains=4)
        assert "Chains that disagree" in [f.title for f in apart]
        few = check({"x": nested_normal(4, 16, 2, (0, 0, 1.0))}, num_superchains=4)
        assert [f for f in few if f.title == "Too few draws to diagnose" and "32 draws (16 chains of 2)" in f.detail]


class TestSample:
    def run(self, key, position, **settings):
        settings = {"num_samples": 1, "num_chains": 12, "num_superchains": 3, "progress": False} | settings
        # steps so small that draws are starts
        algorithm = gx.hmc(lambda x: -0.5 * jnp.sum(x**2), step_size=1e-9, num_integration_steps=1)
        return gx.sample(key, algorithm, position, **settings)["posterior"]["position"].values[:, 0]

    def test_chains_share_starts_in_order(self, key):
        """Catches starts that are dealt out in turn, which would mix the superchains."""
        first = self.run(key, lambda k: jax.random.normal(k, (2,)))
        groups = first.reshape(3, 4, 2)
        np.testing.assert_allclose(groups, np.broadcast_to(groups[:, :1], groups.shape), atol=1e-6)
        assert np.ptp(groups[:, 0], axis=0).min() > 0.01

    def test_stacked_points_are_one_for_each_superchain(self, key):
        points = jnp.arange(6.0).reshape(3, 2)
        np.testing.assert_allclose(
            self.run(key, points, stacked=True), np.repeat(np.asarray(points), 4, axis=0), atol=1e-6
        )

    def test_groups_that_do_not_fit_are_refused(self, key):
        with pytest.raises(ValueError, match=r"sample: num_superchains must divide .* found 5 for 12 chains"):
            self.run(key, jnp.zeros(2), num_superchains=5)
