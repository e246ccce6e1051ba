"""Possible problems of a run, described in plain English; the estimators behind them are re-exported.

:func:`check` inspects the draws and the sampler's statistics and reports what it found, what it expected and
what to do. The estimators are in :mod:`geodax.diagnostics.convergence`, the table in
:mod:`geodax.diagnostics.summary`; both are available here.

Sources:
    Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization, folding, and localization: an
    improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16(2). (R-hat below 1.01, 100
    effective draws a chain.)
    Betancourt (2016), Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo. (E-BFMI.)
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from geodax import _checks
from geodax._wording import in_python
from geodax.diagnostics import remedies
from geodax.diagnostics.chain_statistics import LARGEST_RHAT, rhat_bounds
from geodax.diagnostics.convergence import FEW_DRAWS, MINIMUM_DRAWS, e_bfmi, ess, mcse, nested_rhat, rhat
from geodax.diagnostics.directional import are_frames, are_unit_vectors, cut_angles
from geodax.diagnostics.drifts import drifting, rising
from geodax.diagnostics.finding import Finding, share
from geodax.diagnostics.funnels import falling_acceptance
from geodax.diagnostics.movement import hardly_moving
from geodax.diagnostics.rounding import equal_but_for_rounding, off_manifold, rounded_density
from geodax.diagnostics.several_runs import repeated_chains
from geodax.diagnostics.summary import (
    Summary,
    SummaryRow,
    chains_and_draws,
    divergences_between,
    draws_and_stats,
    rhats_with_sizes,
    statistic,
    summarize,
)
from geodax.mcmc.step_size import LARGEST_STEP
from geodax.run.blocks import is_still, not_finite

__all__ = ["Summary", "SummaryRow", "Finding", "check", "e_bfmi", "ess", "mcse", "nested_rhat", "rhat", "summarize"]

_SMALLEST_ESS_PER_CHAIN = 100
_SMALLEST_E_BFMI = 0.3
_E_BFMI_OF_FUNNELS = 0.5  # below, and the acceptance rate falls with one number
_LARGEST_FALL = 0.3  # rank correlation of the acceptance rate with a number
_NAMES_SHOWN = 5
_MOST_CLIPPED = 0.01  # of the draws; rare long gradients hardly matter


def check(
    draws: Mapping[str, Any],
    sample_stats: Mapping[str, Any] | None = None,
    *,
    max_num_integration_steps: int | None = None,
    residual_bound: float | None = None,
    summary: Summary | None = None,
    num_superchains: int | None = None,
    configurational_temperature: Any = None,
) -> list[Finding]:
    """Check for signs that the draws do not represent the posterior.

    Chains disagree if R-hat is above 1.01 for a number, or above what its effective draws explain: the value that the
    maximum over all numbers exceeds in one of a hundred checks of chains of one distribution, at most 1.05.

    Args:
        draws: Arrays of shape (chain, draw, ...) by name, all with the same chains and draws, the DataTree of
            :func:`geodax.sample`, whose group ``posterior`` is used, or one of its groups.
        sample_stats: The sampler's statistics of shape (chain, draw) by name; None: the group of this name, if
            ``draws`` is a whole DataTree. Used if present: ``is_divergent``, ``is_finite``, ``energy``,
            ``logdensity`` and ``acceptance_rate`` with the dtype of the run, ``num_integration_steps``, ``residual``,
            ``potential``, ``step_size`` and ``temperature``.
        max_num_integration_steps: The maximal number of steps of a trajectory (a NUTS sampler of tree depth d:
            ``2**d - 1``); None for a sampler with a fixed number of steps.
        residual_bound: The largest distance from the manifold that is attributed to rounding. None: the machine
            epsilon of the residual's dtype to the power 2/3, that is a third of the digits lost: 2.4e-5 in
            single and 3.7e-11 in double precision.
        summary: The summary of the same draws with the same superchains, if it is already known.
        num_superchains: Number of groups of chains that started at the same point: chains are then judged by
            nested R-hat and can be short, and effective draws are counted per superchain.
        configurational_temperature: That of each chain, from
            :func:`geodax.diagnostics.configurational_temperature`: tells whether chains move as far as the posterior is
            wide. None compares the spread of the draws with that of a quarter of the run.

    Returns:
        The findings, the severe ones first; an empty list if there are none.
    """
    counted = divergences_between(draws)
    draws, stats = draws_and_stats(draws, sample_stats)
    num_chains, num_draws = chains_and_draws(draws)
    still = {name: is_still(values) for name, values in draws.items() if 0 not in values.shape}
    climbing = list(rising(stats))
    findings = [
        *_non_finite(draws),
        *rounded_density(stats),
        *_chains_that_never_moved(still, {name for name in still if draws[name].dtype.kind in "biu"}, stats),
        *repeated_chains(draws),
        *_stopped(stats),
        *_clipped(stats),
        *_divergences(stats, counted),
        *off_manifold(stats, residual_bound),
        *_few_draws(num_chains, num_draws, num_superchains),
        *(climbing or _energy(draws, stats)),
        *drifting(stats),
        *_movement(draws, stats, num_superchains, configurational_temperature),
        *_without_bound(stats),
        *_long_trajectories(stats, max_num_integration_steps),
    ]
    if num_draws >= MINIMUM_DRAWS or num_superchains is not None:
        rows = (summarize(draws, num_superchains=num_superchains) if summary is None else summary).rows
        findings += equal_but_for_rounding(draws, stats, rows)
        rhats, sizes = rhats_with_sizes(draws, rows)
        bounds = rhat_bounds(rhats, sizes, num_chains, num_draws, num_superchains)
        findings += [*_disagreeing_chains(rows, num_chains, draws, *bounds), *cut_angles(draws, rows)]
        if num_superchains is not None and num_draws >= MINIMUM_DRAWS:
            findings += _few_effective_draws(rows, num_superchains, "superchain")
        elif num_draws >= FEW_DRAWS:
            findings += _few_effective_draws(rows, num_chains, "chain")
    return sorted(findings, key=lambda finding: ("severe", "warning", "note").index(finding.severity))


def _non_finite(draws: Mapping[str, Any]) -> Iterator[Finding]:
    for name, values in draws.items():
        count, (chain, draw) = not_finite(values)
        if count:
            yield Finding(
                "severe",
                "Non-finite draws",
                f"`{name}` has {count} values that are NaN or infinite, first in chain {chain} "
                f"at draw {draw}; every draw should be finite.",
                "Look for a logarithm or a root of a negative number in the log density, and start the "
                "chains where the log density is finite.",
            )


def _chains_that_never_moved(
    is_still: Mapping[str, Bool[np.ndarray, " chain"]], discrete: Collection[str], stats: Mapping[str, Any]
) -> Iterator[Finding]:
    if not is_still:  # no variable has an entry that could move
        return
    everything_is_still = np.logical_and.reduce(list(is_still.values()))
    why = (
        "Its steps were lost in rounding: look for a step size that is far too small, and for a density without a "
        "bound, such as a loss in place of a log likelihood"
        if "potential" in stats  # of a sampler that accepts everything
        else "Every proposal was rejected: start that chain elsewhere, let the warm-up find a smaller step size, and "
        "check that the log density is finite at the initial position"
    )
    if everything_is_still.any():
        yield Finding(
            "severe",
            "A chain that never moved",
            f"{_chains(everything_is_still).capitalize()} repeated one point in all draws; every chain "
            "should move through the posterior.",
            f"{why}. Exclude the chain from all estimates.",
        )
    for name, still in is_still.items():
        alone = still & ~everything_is_still
        if alone.any() and not still.all() and name not in discrete:  # a label that is certain does not move
            yield Finding(
                "severe",
                "A variable that never moved in some chains",
                f"`{name}` kept one value in {_chains(alone)} and moved in the others.",
                "Check that the log density depends on it in the same way everywhere, and run these chains "
                "again from another initial position.",
            )


def _stopped(stats: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    is_finite = statistic(stats, "is_finite")
    if is_finite is not None and not is_finite.all():
        yield Finding(
            "severe",
            "Non-finite steps",
            f"{share(~is_finite.astype(bool))} had a non-finite gradient or position; none should.",
            "Use a smaller step size, clip or rescale the inputs, and look for overflow in single precision.",
        )


def _clipped(stats: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    scale, temperature = statistic(stats, "gradient_scale"), statistic(stats, "temperature")
    is_sampling = temperature is None or temperature.any()
    if scale is not None and is_sampling and (scale < 1).mean() > _MOST_CLIPPED:
        yield Finding(
            "warning",
            "Clipped gradients",
            f"{share(scale < 1)} clipped the gradient, to {np.median(scale[scale < 1]):.2g} of its length in the "
            "median. The draws are not those of the posterior: they spread more, since long gradients pull less.",
            "Raise clip_norm until it hardly acts, or leave it out and take a smaller step size.",
        )


def _divergences(stats: Mapping[str, np.ndarray], counted: int | None) -> Iterator[Finding]:
    is_divergent = statistic(stats, "is_divergent")
    if is_divergent is not None and (counted or is_divergent.any()):
        between = "" if counted is None else f", and {counted} iterations of the whole run with those between draws,"
        yield Finding(
            "severe" if is_divergent.mean() > 0.01 else "warning",
            "Divergent trajectories",
            f"{share(is_divergent)}{between} diverged: the integrator failed in a region of high curvature, which the "
            "draws then miss, or met a log density that is not finite. There should be none.",
            remedies.of_divergences(),
        )


def _few_draws(num_chains: int, num_draws: int, num_superchains: int | None) -> Iterator[Finding]:
    if num_superchains is not None:
        draws_of_one = num_chains * num_draws // num_superchains
        if draws_of_one < FEW_DRAWS:
            yield Finding(
                "warning",
                "Too few draws to diagnose",
                f"A superchain has {draws_of_one} draws ({num_chains // num_superchains} chains of {num_draws}); below "
                f"{FEW_DRAWS} nested R-hat is near {LARGEST_RHAT} even for independent draws.",
                "Continue the run, or use more chains per superchain.",
            )
    elif num_draws < MINIMUM_DRAWS:
        yield Finding(
            "severe",
            "Too few draws for any diagnostic",
            f"The number of draws per chain is {num_draws}; R-hat and the effective sample size need at least "
            f"{MINIMUM_DRAWS}.",
            "Continue the run: 1000 draws per chain are a common start.",
        )
    elif num_draws < FEW_DRAWS:
        yield Finding(
            "warning",
            "Too few draws to diagnose",
            f"The number of draws per chain is {num_draws}; below {FEW_DRAWS} R-hat and the effective sample "
            "size are themselves uncertain, and a stuck chain may not be detected.",
            "Continue the run: 1000 draws per chain are a common start.",
        )
    if num_chains == 1:
        yield Finding(
            "note",
            "One chain only",
            "There is one chain, so nothing can show whether it found all of the posterior; R-hat "
            "compares two or more.",
            "Run 4 chains from different initial positions.",
        )


def _energy(draws: Mapping[str, Any], stats: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    energy, acceptance_rate = statistic(stats, "energy"), statistic(stats, "acceptance_rate")
    if energy is None or energy.shape[1] < FEW_DRAWS:
        return
    fraction = e_bfmi(energy)
    if acceptance_rate is not None and (fraction < _E_BFMI_OF_FUNNELS).any():
        found = falling_acceptance(draws, acceptance_rate)
        if found is not None and found.correlation > _LARGEST_FALL:
            yield Finding(
                "severe",
                "A funnel",
                f"The acceptance rate falls to {found.at_end:.2f} where `{found.name}` is in its {found.end} 5 %, from "
                f"{found.elsewhere:.2f} elsewhere, and the E-BFMI is as low as {fraction.min():.2f}: the posterior is "
                "narrow at that end and wide at the other, no step size fits both, and draws at the end are missing.",
                remedies.of_funnels(),
            )
            return
    is_low = fraction < _SMALLEST_E_BFMI
    if is_low.any():
        yield Finding(
            "warning",
            "Energy explored slowly",
            f"The E-BFMI of {_chains(is_low)} is as low as {fraction[is_low].min():.2f}; "
            f"{_SMALLEST_E_BFMI} or more was expected. The tails of the posterior may be missing.",
            remedies.of_slow_energy(),
        )


def _movement(
    draws: Mapping[str, Any], stats: Mapping[str, np.ndarray], num_superchains: int | None, found: Any
) -> Iterator[Finding]:
    temperature = statistic(stats, "temperature")
    wanted = 1.0 if temperature is None else float(temperature.mean())
    if wanted > 0 and num_superchains is None:
        found = None if found is None else _checks.numbers("check", "configurational_temperature", found)
        yield from hardly_moving(draws, wanted, found)


def _without_bound(stats: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    step_size = statistic(stats, "step_size")
    if step_size is not None and (step_size >= 0.99 * LARGEST_STEP).any():
        yield Finding(
            "severe",
            "Unbounded step size",
            f"The step size has grown to {step_size.max():.3g}, the largest possible value: the density has no "
            "curvature that would bound it, and may be improper.",
            "Check that the log density depends on every variable, and give a proper prior to those that the data do "
            "not determine.",
        )


def _long_trajectories(stats: Mapping[str, np.ndarray], maximum: int | None) -> Iterator[Finding]:
    num_steps = statistic(stats, "num_integration_steps")
    if num_steps is None or maximum is None:
        return
    is_cut = num_steps >= maximum
    if is_cut.any():
        yield Finding(
            "warning" if is_cut.mean() > 0.05 else "note",
            "Trajectories cut at the maximal length",
            f"{share(is_cut)} reached the maximum of {maximum} integration steps before the trajectory "
            "turned back. The draws are valid, but each is expensive and moves less than it could.",
            "Warm up longer so that step size and scales fit"
            + in_python(", rescale the parameters, or allow deeper trees.", "."),
        )


def _disagreeing_chains(
    rows: tuple[SummaryRow, ...],
    num_chains: int,
    draws: Mapping[str, Any],
    bounds: Float[np.ndarray, " row"],
    by_chance: Float[np.ndarray, " row"],
) -> Iterator[Finding]:
    high = sorted(
        (numbers for numbers in zip(rows, bounds, by_chance, strict=True) if numbers[0].rhat > numbers[1]),
        key=lambda numbers: -numbers[0].rhat,
    )
    if num_chains < 2 or not high:
        return
    is_slow = all(row.rhat <= most for row, _, most in high)
    bound, high = min(bound for _, bound, _ in high), [row for row, _, _ in high]
    advice = "Continue with a longer warm-up, and compare the chains: are they in different modes" + in_python(
        ", or does a variable lack a proper prior?", "?"
    )
    disagreeing = [name for name in draws if any(row.name.startswith(f"{name}[") for row in high)]
    if frames := [f"`{name}`" for name in disagreeing if are_frames(draws[name])]:
        advice += (
            f" {_hold(frames)} matrices with orthonormal columns: if the model determines them only up to signs or a "
            "rotation of the columns, their entries cannot agree. Use the functions that "
            "`gx.diagnostics.invariant_draws` computes from them instead. If the model treats all columns alike, "
            "chains also exchange them, and the numbers that belong to them, such as scales: sort both in each draw "
            "by the scale, or use a prior on ordered scales"
            + in_python(" (in NumPyro `dist.TransformedDistribution` with `OrderedTransform`).", ".")
        )
    elif axes := [f"`{name}`" for name in disagreeing if are_unit_vectors(draws[name])]:
        advice += (
            f" {_hold(axes)} unit vectors: if the model determines them only up to their signs, pass them as matrices "
            "with one column, x[..., None], to `gx.diagnostics.invariant_draws` or `align_signs`."
        )
    listed = _listed([(row.name, f"{row.rhat:.3f}") for row in high])
    reason = f" (not {LARGEST_RHAT}: so few effective draws differ by chance)"
    limit = f"{bound:.3f}{reason}" if bound > LARGEST_RHAT else f"{LARGEST_RHAT}"
    or_short = ", or have too few effective draws to tell" if is_slow else ""
    yield Finding(
        "severe" if high[0].rhat > 1.1 else "warning",
        "Chains that disagree",
        f"R-hat is above {limit} for {len(high)} of {len(rows)} numbers: {listed}. The chains have not "
        f"reached the same distribution{or_short}.",
        advice,
    )


def _few_effective_draws(rows: tuple[SummaryRow, ...], num_groups: int, group: str) -> Iterator[Finding]:
    least = _SMALLEST_ESS_PER_CHAIN * num_groups
    for title, uncertain, column in (
        ("Few effective draws in the bulk", "Means and medians", "ess_bulk"),
        ("Few effective draws in the tails", "Standard deviations and intervals", "ess_tail"),
    ):
        low = sorted((getattr(row, column), row.name) for row in rows if getattr(row, column) < least)
        if low:
            listed = _listed([(name, f"{np.floor(value):.0f}") for value, name in low])
            yield Finding(
                "warning",
                title,
                f"The effective sample size ({column}) is below {least}, that is {_SMALLEST_ESS_PER_CHAIN} "
                f"per {group}, for {len(low)} of {len(rows)} numbers: {listed}. {uncertain} are uncertain.",
                f"Draw about {np.ceil(least / max(low[0][0], 1)):.0f} times as many, or warm up longer so "
                "that the chain mixes better.",
            )


def _chains(is_affected: Bool[np.ndarray, " chain"]) -> str:
    indices = np.flatnonzero(is_affected)
    return f"chain{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))}"


def _hold(names: list[str]) -> str:
    """The subject and the verb of a sentence about what variables hold."""
    return f"{', '.join(names)} {'holds' if len(names) == 1 else 'hold'}"


def _listed(names_and_values: list[tuple[str, str]]) -> str:
    shown = ", ".join(f"`{name}` ({value})" for name, value in names_and_values[:_NAMES_SHOWN])
    left_out = len(names_and_values) - _NAMES_SHOWN
    return f"{shown} and {left_out} more" if left_out > 0 else shown
