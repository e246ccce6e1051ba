"""What slow mixing of the chains of a network means for its predictions."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from geodax.diagnostics.convergence import ess, mcse, rhat
from geodax.diagnostics.findings import Finding

_SEVERITIES: Mapping[str, Literal["warning", "note"]] = {
    "Chains that disagree": "warning",
    "Few effective draws in the bulk": "note",
    "Few effective draws in the tails": "note",
}
_ADVICE = (
    "The chains of a network are near different modes, and the ensemble averages over all of them. Judge it by the "
    "held-out rows. If chains only move slowly, draw more: `geodax resume RUN --num-samples N`."
)
_ACCURATE = 0.1  # of the standard deviation of a prediction: a squared error that is larger by 1 %
_ACCURATE_PROBABILITY = 0.02


def about_ensemble(num_networks: int, num_draws: int) -> list[Finding]:
    """Say what stands in place of findings about chains, where networks or posteriors are fitted by themselves.

    ``num_draws`` are those around each network; 1 for a deep ensemble.
    """
    drawn = f"{num_draws} weights drawn independently around"
    if num_networks == 1:
        title, made = "Draws around one network", f"1 network was trained, and {drawn} it"
    elif num_draws == 1:
        title, made = "A deep ensemble", f"{num_networks} networks were trained independently"
    else:
        title = "Draws around several networks"
        made = f"{num_networks} networks were trained independently, and {drawn} each"
    none = "they are not draws of a Markov chain, so R-hat and effective sample sizes say nothing about them."
    more = "" if num_networks == 1 else "; --num-chains sets the number of networks"
    return [Finding("note", title, f"{made}: {none}", f"Judge the ensemble by the held-out rows{more}.")]


def judged_by_predictions(findings: Sequence[Finding], draws: Mapping[str, np.ndarray]) -> list[Finding]:
    """Adapt findings to an ensemble over modes, and replace those about mixing where predictions are accurate enough.

    Draws are ``fit`` (chain, draw, row) and ``noise`` (chain, draw), for each of several targets ``fit of a`` and
    ``noise of a``; or ``log_odds`` (chain, draw, row). The most severe findings come first.
    """
    adapted = [
        finding._replace(severity=_SEVERITIES[finding.title], advice=_ADVICE)
        if finding.title in _SEVERITIES
        else finding
        for finding in findings
    ]
    if any(finding.title in _SEVERITIES for finding in adapted):
        error, is_accurate = _monte_carlo_error(draws)
        if is_accurate:
            fits = np.concatenate([draws[name] for name in draws if name.startswith(("fit", "log_odds"))], axis=2)
            note = Finding(
                "note",
                "Chains that move slowly",
                f"R-hat is up to {np.nanmax(rhat(fits)):.2f} and the effective sample size as low as "
                f"{np.nanmin(ess(fits)):.0f}, but the Monte Carlo error of {error}.",
                "More draws would hardly change the predictions.",
            )
            adapted = [finding for finding in adapted if finding.title not in _SEVERITIES] + [note]
    return sorted(adapted, key=lambda finding: ("severe", "warning", "note").index(finding.severity))


def _monte_carlo_error(draws: Mapping[str, np.ndarray]) -> tuple[str, bool]:
    if "log_odds" in draws:
        error = float(np.max(mcse(1 / (1 + np.exp(-draws["log_odds"])))))
        return f"the predicted probabilities is at most {error:.3f}", error <= _ACCURATE_PROBABILITY
    error = max(
        float(np.max(mcse(fit) / np.sqrt(fit.var(axis=(0, 1)) + np.mean(draws.get(f"noise{name[3:]}", 0.0) ** 2))))
        for name, fit in draws.items()
        if name.startswith("fit")
    )
    return f"a prediction is at most {100 * error:.0f} % of its standard deviation", error <= _ACCURATE
