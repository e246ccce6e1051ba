"""Motion at constant speed against Hamiltonian motion: gradients per effective draw, and the bias of the unadjusted form; float64.

Targets: the densities of ``benchmarks/stiefel.py`` on frames, a standard normal distribution, one whose standard deviations go from 0.01 to
100, and the eight schools in their non-centred form. 16 chains each. nuts, hmc and adjusted_mclmc warm up for 500 iterations together,
mclmc for 2,000 steps each chain alone, by their defaults; nuts also runs with 4 chains that are tuned one by one, whose step sizes are
smaller. BlackJAX's two samplers (Euclidean targets only) find step size, length and a
diagonal mass matrix by their own rules, each chain alone, over 6,000 steps (mclmc) or 2,000 iterations with target acceptance rate 0.9;
its integrator takes two gradients a step.

Columns: gradients after warm-up over the smallest bulk ESS of the entries, of the squares of their deviations from the mean, and of the log
density; the error of the mean log density, in standard deviations of the log density, with its standard error; the largest and the mean
relative error of a variance. Truth: exact moments of the normals, those of ``benchmarks/results/stiefel_moments.json``, and nuts's own where
nothing better is known.

    python benchmarks/microcanonical.py [--targets normal ...] [--samplers nuts ...]

writes benchmarks/results/microcanonical.json (rows that are not run stay) and prints the rows.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import _threads  # noqa: F401  (before JAX)
import jax
import jax.numpy as jnp
import numpy as np
from _stiefel.target import make_target, read_moments
from _versions import installed

import geodax as gx
from geodax.diagnostics.findings import ess

jax.config.update("jax_enable_x64", True)

RESULTS = Path(__file__).parent / "results" / "microcanonical.json"
NUM_CHAINS, FEW_CHAINS = 16, 4


class Target(NamedTuple):
    """A log density, where chains start, and what is known of it.

    Attributes:
        logdensity: The function of an array.
        start: From a key to a position.
        manifold: None is Euclidean.
        mean_logdensity: Exact, or None.
        variances: Exact, or None.
        num_draws: Iterations of the adjusted samplers.
    """

    logdensity: Callable
    start: Callable
    manifold: gx.Stiefel | None = None
    mean_logdensity: float | None = None
    variances: np.ndarray | None = None
    num_draws: int = 2000


def frames(n: int, p: int, num_draws: int) -> Target:
    manifold, like, moments = gx.Stiefel(), jnp.zeros((n, p)), read_moments(n, p)
    assert moments is not None
    return Target(
        make_target(n, p).logdensity,
        lambda key: manifold.random_point(key, like),
        manifold,
        moments.logdensity,
        num_draws=num_draws,
    )


def normal(scales: np.ndarray) -> Target:
    return Target(
        lambda x: -0.5 * jnp.sum((x / scales) ** 2),
        lambda key: scales * jax.random.normal(key, scales.shape),
        mean_logdensity=-0.5 * len(scales),
        variances=scales**2,
    )


def eight_schools() -> Target:
    """Positions: mean, logarithm of the scale, standardised effects; half-Cauchy(5) scale, normal(0, 5) mean."""
    effects = jnp.asarray([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = jnp.asarray([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def logdensity(x):
        mean, log_scale, z = x[0], x[1], x[2:]
        scale = jnp.exp(log_scale)
        prior = -0.5 * (mean / 5.0) ** 2 - jnp.log1p((scale / 5.0) ** 2) + log_scale - 0.5 * jnp.sum(z**2)
        return prior - 0.5 * jnp.sum(((effects - mean - scale * z) / errors) ** 2)

    return Target(logdensity, lambda key: jax.random.normal(key, (10,)), num_draws=4000)


TARGETS: dict[str, Callable[[], Target]] = {
    "frames (10, 3)": lambda: frames(10, 3, 2000),
    "frames (50, 5)": lambda: frames(50, 5, 1500),
    "frames (200, 10)": lambda: frames(200, 10, 600),
    "normal, 100": lambda: normal(np.ones(100)),
    "normal, 100, ill-conditioned": lambda: normal(np.logspace(-2, 2, 100)),
    "eight schools, 10": eight_schools,
}


class Run(NamedTuple):
    """Draws with axes (chain, draw, entry), their log densities, gradients, and settings for the table."""

    x: np.ndarray
    logdensity: np.ndarray
    gradients: float
    step_size: float
    length: float | None
    energy_variance: float | None
    acceptance: float | None


def ours(name: str, target: Target) -> Run:
    sampler, *few = name.split(", ")
    algorithm = getattr(gx, sampler)(target.logdensity, manifold=target.manifold)
    is_unadjusted = sampler == "mclmc"
    tree = gx.sample(
        jax.random.key(1),
        algorithm,
        target.start,
        num_samples=target.num_draws * (2 if is_unadjusted else 1),
        num_warmup=2000 if is_unadjusted else 500,
        num_chains=FEW_CHAINS if few else NUM_CHAINS,
        progress=False,
    )
    x, stats = tree["posterior"]["position"].values, tree["sample_stats"]
    learned = {name: values.values for name, values in tree["adaptation"].data_vars.items()}
    start = target.start(jax.random.key(0))
    dim = start.size if target.manifold is None else target.manifold.dim(start)
    length = next((float(learned[k].mean()) for k in ("length", "length.time") if k in learned), None)
    return Run(
        x.reshape(*x.shape[:2], -1),
        stats["lp"].values,
        float(stats["n_steps"].sum()),
        float(learned["step_size"].mean()),
        length,
        float((stats["energy_change"] ** 2).mean()) / dim if is_unadjusted else None,
        None if is_unadjusted else float(stats["acceptance_rate"].mean()),
    )


def blackjax_mclmc(target: Target) -> Run:
    import blackjax

    kernel = blackjax.mclmc.build_kernel()
    dim = target.start(jax.random.key(0)).size

    def chain(key):
        key_start, key_init, key_tune, key_run = jax.random.split(key, 4)
        state = blackjax.mclmc.init(target.start(key_start), target.logdensity, key_init)
        state, found, _ = blackjax.mclmc_find_L_and_step_size(
            mclmc_kernel=kernel, num_steps=20_000, state=state, rng_key=key_tune, logdensity_fn=target.logdensity
        )

        def step(state, key):
            state, info = kernel(
                rng_key=key,
                state=state,
                logdensity_fn=target.logdensity,
                inverse_mass_matrix=found.inverse_mass_matrix,
                L=found.L,
                step_size=found.step_size,
            )
            return state, (state.position, state.logdensity, info.energy_change)

        return jax.lax.scan(step, state, jax.random.split(key_run, 2 * target.num_draws))[1], found

    (x, logdensity, errors), found = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(1), NUM_CHAINS))
    unit = np.sqrt(dim - 1)
    return Run(
        np.asarray(x),
        np.asarray(logdensity),
        2.0 * logdensity.size,
        float(found.step_size.mean() / unit),
        float(found.L.mean() / unit),
        float(jnp.mean(errors**2) / dim),
        None,
    )


def blackjax_adjusted(target: Target) -> Run:
    import blackjax
    from blackjax.mcmc.adjusted_mclmc_dynamic import make_random_trajectory_length_fn

    kernel = blackjax.adjusted_mclmc_dynamic.build_kernel(integration_steps_fn=make_random_trajectory_length_fn(True))
    dim = target.start(jax.random.key(0)).size

    def chain(key):
        key_start, key_init, key_tune, key_run = jax.random.split(key, 4)
        state = blackjax.adjusted_mclmc_dynamic.init(target.start(key_start), target.logdensity, key_init)
        state, found, _ = blackjax.adjusted_mclmc_find_L_and_step_size(
            mclmc_kernel=kernel,
            logdensity_fn=target.logdensity,
            num_steps=10_000,
            state=state,
            rng_key=key_tune,
            target=0.9,
        )

        def step(state, key):
            state, info = kernel(
                rng_key=key,
                state=state,
                logdensity_fn=target.logdensity,
                step_size=found.step_size,
                inverse_mass_matrix=found.inverse_mass_matrix,
                integration_steps_params=(found.L / found.step_size,),
            )
            return state, (state.position, state.logdensity, info.num_integration_steps, info.acceptance_rate)

        return jax.lax.scan(step, state, jax.random.split(key_run, target.num_draws))[1], found

    (x, logdensity, steps, acceptance), found = jax.jit(jax.vmap(chain))(
        jax.random.split(jax.random.key(1), NUM_CHAINS)
    )
    unit = np.sqrt(dim - 1)
    return Run(
        np.asarray(x),
        np.asarray(logdensity),
        2.0 * float(steps.sum()),
        float(found.step_size.mean() / unit),
        float(found.L.mean() / unit),
        None,
        float(acceptance.mean()),
    )


OURS = ("nuts, 4 chains", "nuts", "hmc", "adjusted_mclmc", "mclmc")
PEERS = {"BlackJAX adjusted_mclmc_dynamic": blackjax_adjusted, "BlackJAX mclmc": blackjax_mclmc}


def figures(run: Run, mean_logdensity: float, variances: np.ndarray) -> dict:
    mean_ess = float(ess(run.logdensity, method="mean"))
    spread = run.logdensity.std()
    ratio = run.x.var((0, 1)) / variances - 1
    squares = (run.x - run.x.mean((0, 1))) ** 2
    return {
        "gradients_per_draw": run.gradients / float(ess(run.x, method="bulk").min()),
        "of_squares": run.gradients / float(ess(squares, method="bulk").min()),
        "of_logdensity": run.gradients / float(ess(run.logdensity, method="bulk")),
        "smallest_ess": float(ess(run.x, method="bulk").min()),
        "logdensity_error": float((run.logdensity.mean() - mean_logdensity) / spread),
        "its_standard_error": mean_ess**-0.5,
        "largest_variance_error": float(np.abs(ratio).max()),
        "mean_variance_error": float(ratio.mean()),
        "step_size": run.step_size,
        "length": run.length,
        "energy_variance": run.energy_variance,
        "acceptance": run.acceptance,
    }


def compare(name: str, samplers: list[str]):
    """One row for each sampler; nuts always runs, as it may be the truth."""
    target = TARGETS[name]()
    reference = ours("nuts", target)
    known = target.mean_logdensity
    mean_logdensity = float(reference.logdensity.mean()) if known is None else known
    variances = reference.x.var((0, 1)) if target.variances is None else target.variances
    for sampler in samplers:
        if sampler in PEERS and target.manifold is not None:
            continue
        run = reference if sampler == "nuts" else PEERS[sampler](target) if sampler in PEERS else ours(sampler, target)
        yield {"target": name, "sampler": sampler} | figures(run, mean_logdensity, variances)


def main() -> None:
    names = [*OURS, *PEERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", help="parts of their names")
    parser.add_argument("--samplers", nargs="+", choices=names, default=names)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    facts = {"benchmark": "microcanonical", "rows": []}
    if options.out.exists():
        facts = json.loads(options.out.read_text())
    order = list(TARGETS)
    for target in order:
        if options.targets and not any(part in target for part in options.targets):
            continue
        for row in compare(target, options.samplers):
            kept = [old for old in facts["rows"] if (old["target"], old["sampler"]) != (target, row["sampler"])]
            facts["rows"] = sorted(
                [*kept, row], key=lambda row: (order.index(row["target"]), names.index(row["sampler"]))
            )
            facts["versions"] = installed("jax", "numpy", "blackjax")
            options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
