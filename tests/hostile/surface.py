"""The public names that are put to the test, each with arguments that work and with odd ones in their place.

A case is a name and its arguments, of which one to three are odd. Every name works with the arguments given here
(`test_surface_works`), so that a refusal has to do with what is odd.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

import geodax as gx
from geodax.app.network.contacts import count_windows
from geodax.diagnostics import alignment
from geodax.diagnostics import findings as diagnostics
from geodax.geometry import hadamard
from geodax.sgmcmc import schedules
from tests.hostile import values as odd

SCIKIT_LEARN = ("sklearn/utils/", "sklearn/base.py")
"""Estimators check tables and labels by scikit-learn's own functions, whose messages its users know."""


class Argument(NamedTuple):
    """An argument: one that works, and a strategy of odd ones."""

    good: Any
    odd: st.SearchStrategy


class Entry(NamedTuple):
    """A public name.

    Attributes:
        name: What it is called in the counts.
        call: It, as a function of the arguments.
        arguments: By name.
        is_costly: Whether a case that is not refused compiles for seconds.
        validators: Parts of paths of libraries whose errors are documented too.
    """

    name: str
    call: Callable[..., Any]
    arguments: Mapping[str, Argument]
    is_costly: bool = False
    validators: tuple[str, ...] = ()


class Case(NamedTuple):
    """An entry with arguments."""

    entry: Entry
    given: Mapping[str, Any]
    changed: tuple[str, ...]

    def __call__(self) -> Any:
        return jax.block_until_ready(jax.tree.leaves(self.entry.call(**self.given)))

    def __repr__(self) -> str:
        return f"{self.entry.name}({', '.join(f'{n}={shown(self.given[n])}' for n in self.changed)})"


def shown(value: Any) -> str:
    """A value in few words."""
    if isinstance(value, np.ndarray | jax.Array):
        return f"{type(value).__name__} {value.dtype} {value.shape} {str(value).replace(chr(10), ' '):.60}"
    return f"{value!r:.80}"


@st.composite
def cases(draw, entries) -> Case:
    """A case of one of some entries."""
    entry = draw(st.sampled_from(entries))
    names = sorted(entry.arguments)
    changed = draw(st.lists(st.sampled_from(names), min_size=1, max_size=min(3, len(names)), unique=True))
    given = {name: argument.good for name, argument in entry.arguments.items()}
    given |= {name: draw(entry.arguments[name].odd) for name in changed}
    return Case(entry, given, tuple(changed))


def array(good: Any, *shapes: tuple[int, ...]) -> Argument:
    return Argument(good, odd.arrays(shapes) if shapes else odd.arrays())


def number(good: Any) -> Argument:
    return Argument(good, odd.numbers)


def count(good: Any) -> Argument:
    return Argument(good, odd.counts)


def choice(good: Any) -> Argument:
    return Argument(good, odd.choices)


def flag(good: bool) -> Argument:
    return Argument(good, odd.flags)


def function(good: Any) -> Argument:
    return Argument(good, odd.functions)


def anything(good: Any) -> Argument:
    return Argument(good, st.one_of(odd.numbers, odd.choices, odd.functions, odd.arrays()))


KEY = Argument(jax.random.key(0), odd.keys)
DRAWS = Argument((2,), odd.shapes_of_draws)
_random = np.random.default_rng(0)
_X32 = np.linalg.qr(_random.standard_normal((3, 2)))[0].astype(np.float32)
_TREE = Argument({"x": jnp.asarray(_X32)}, odd.trees())


def _manifolds() -> list[Entry]:
    entries = [
        Entry("Stiefel", gx.Stiefel, {"metric": choice("canonical"), "flow": choice("cayley")}),
        Entry("Product", lambda tree: gx.Product(tree).dim({"x": jnp.asarray(_X32)}), {
            "tree": Argument({"x": gx.Stiefel()}, st.one_of(odd.trees(), odd.functions, st.sampled_from(
                [{"y": gx.Stiefel()}, {"x": [gx.Stiefel()]}, {"x": {"y": gx.Sphere()}}, [gx.Stiefel()], gx.Sphere]))),
        }),
    ]  # fmt: skip
    for name, manifold, good in (
        ("Stiefel", gx.Stiefel(), _X32),
        ("Sphere", gx.Sphere(), np.float32([0.6, 0.8])),
        ("Euclidean", gx.Euclidean(), _X32),
        ("Product", gx.Product({"x": gx.Stiefel()}), {"x": jnp.asarray(_X32)}),
    ):
        point = Argument(jax.tree.map(jnp.asarray, good), odd.trees())
        for method in ("nearest", "residual", "dim"):
            entries.append(Entry(f"{name}.{method}", getattr(manifold, method), {"x": point}))
        entries.append(Entry(f"{name}.random_point", manifold.random_point, {"key": KEY, "like": point}))
        entries.append(Entry(f"{name}.sample_momentum", manifold.sample_momentum, {"key": KEY, "x": point}))
        entries.append(Entry(f"{name}.project", manifold.project, {"x": point, "u": point}))
    return entries


def _apply(owner: Any, method: str, x: Any) -> Any:
    return getattr(owner, method)(x)


def _binned(score: Callable[..., Any], num_bins: Any, **rest: Any) -> Any:
    return score(**rest, num_bins=num_bins)


def _transforms() -> list[Entry]:
    entries = []
    options = {
        "Givens": {
            "half": flag(False),
            "epsilon": number(0.0),
            "shift": array(0.1, (), (1,), (2,), (3,)),
            "wrap": choice("cut"),
            "determinant": count(1),
        },
        "CayleyChart": {"center": array(np.eye(3)[:, :2], (3, 2), (2, 3), (3, 3), (0, 0))},
        "Householder": {},
        "Polar": {},
    }
    for name, rest in options.items():
        make = getattr(gx.transforms, name)
        entries.append(
            Entry(
                f"transforms.{name}",
                lambda n, p, make=make, **rest: make(n, p, **rest),
                {"n": count(3), "p": count(2), **rest},
            )
        )
        transform = make(3, 2)
        z, q = np.zeros(transform.num_unconstrained, np.float32) + 0.1, np.asarray(_X32)
        for method, good, shape in (
            ("forward", z, (len(z),)),
            ("log_volume", z, (len(z),)),
            ("inverse", q, (3, 2)),
        ):
            entries.append(
                Entry(
                    f"{name}.{method}",
                    functools.partial(_apply, transform, method),
                    {"x": array(good, shape, (3,), (2, 3), (), (0,))},
                )
            )
    entries.append(
        Entry(
            "transforms.unconstrain",
            lambda density, tree: gx.transforms.unconstrain(density, tree),
            {
                "density": function(lambda x: 0.0),
                "tree": Argument({"x": gx.transforms.Polar(3, 2)}, st.one_of(odd.trees(), odd.functions)),
            },
        )
    )
    entries.append(
        Entry(
            "Givens.centered_on",
            lambda x: gx.transforms.Givens(3, 2).centered_on(x),
            {"x": array(_X32, (3, 2), (4, 3, 2), (0, 3, 2), (2, 3))},
        )
    )
    return entries


def _distributions() -> list[Entry]:
    d = gx.distributions
    f = np.float32([[2, 0], [0, 1], [0, 0]])
    a = np.diag(np.float32([1, 0, -1]))
    square = ((3, 3), (2, 3), (3,), (), (0, 0), (4, 4))
    tall = ((3, 2), (2, 3), (3,), (), (0, 2), (3, 0), (2, 3, 2))
    known = {
        "StiefelUniform": d.StiefelUniform(3, 2),
        "VonMisesFisher": d.VonMisesFisher(np.float32([0, 1, 0]), 2.0),
        "MatrixLangevin": d.MatrixLangevin(f),
        "MatrixBingham": d.MatrixBingham(a, np.float32([1, 2])),
        "BinghamVonMisesFisher": d.BinghamVonMisesFisher(f, a),
    }
    entries = [
        Entry("distributions.StiefelUniform", d.StiefelUniform, {"n": count(3), "p": count(2), "dtype": Argument(None, odd.choices)}),
        Entry("distributions.VonMisesFisher", d.VonMisesFisher, {"mean_direction": array(np.float32([0, 1, 0]), (3,), (1,), (0,), (3, 1), ()), "concentration": number(2.0)}),
        Entry("distributions.MatrixLangevin", d.MatrixLangevin, {"f": array(f, *tall)}),
        Entry("distributions.MatrixBingham", d.MatrixBingham, {"a": array(a, *square), "b": array(np.float32([1, 2]), (2,), (3,), (0,), (4,), ())}),
        Entry("distributions.BinghamVonMisesFisher", d.BinghamVonMisesFisher, {"f": array(f, *tall), "a": array(a, *square), "b": array(np.float32([1, 2]), (2,), (3,), ())}),
        Entry("MatrixLangevin.gibbs_sample", known["MatrixLangevin"].gibbs_sample, {"key": KEY, "shape": DRAWS, "num_sweeps": Argument(2, st.sampled_from([-1, 0, 1.5, None, "x", True, float("nan")]))}, is_costly=True),
    ]  # fmt: skip
    for name, distribution in known.items():
        good = np.float32([0, 1, 0]) if name == "VonMisesFisher" else _X32
        entries.append(
            Entry(
                f"{name}.log_prob",
                distribution.log_prob,
                {"x": array(good, good.shape, (2, *good.shape), (3,), (2, 3), (), (0, 3, 2))},
            )
        )
        entries.append(Entry(f"{name}.sample", distribution.sample, {"key": KEY, "shape": DRAWS}, is_costly=True))
    return entries


def _hadamard() -> list[Entry]:
    shapes = ((8,), (3, 4), (4, 3), (12,), (0, 4), (4, 0), (), (1,), (7,))
    return [
        Entry(
            "hadamard.fwht",
            hadamard.fwht,
            {"x": array(np.ones((3, 4), np.float32), *shapes), "axis": count(-1), "backend": choice(None)},
        ),
        Entry("hadamard.hadamard_matrix", hadamard.hadamard_matrix, {"size": count(4)}),
        Entry("hadamard.hadamard_size", hadamard.hadamard_size, {"size": count(5)}),
    ]


def _log_density(x):
    return -0.5 * jnp.sum(x**2)


def _posterior() -> gx.Posterior:
    return gx.Posterior(log_prior=_log_density, log_likelihood=lambda x, y: -0.5 * (y - x[0]) ** 2, num_data=6)


def _samplers() -> list[Entry]:
    m = gx.metrics
    ordinary = {
        "log_density": function(_log_density),
        "manifold": anything(None),
        "step_size": number(0.1),
        "target": number(0.8),
    }
    schedule = Argument(0.1, st.one_of(odd.numbers, odd.functions))
    posterior = Argument(_posterior(), st.one_of(odd.functions, odd.choices))
    return [
        Entry("hmc", lambda log_density, target, **rest: gx.hmc(log_density, target_acceptance_rate=target, **rest),
              {**ordinary, "num_integration_steps": count(4), "length_jitter": number(0.2), "step_size_jitter": number(0.0)}),
        Entry("nuts", lambda log_density, target, **rest: gx.nuts(log_density, target_acceptance_rate=target, **rest),
              {**ordinary, "max_num_doublings": count(5)}),
        Entry("adjusted_mclmc", lambda log_density, target, **rest: gx.adjusted_mclmc(log_density, target_acceptance_rate=target, **rest),
              {**ordinary, "num_integration_steps": count(4), "length_jitter": number(0.2)}),
        Entry("mclmc", lambda log_density, target, **rest: gx.mclmc(log_density, energy_variance=target, **rest), {**ordinary, "length": number(2.0)}),
        Entry("Posterior", gx.Posterior, {"log_prior": function(_log_density), "log_likelihood": function(lambda x, y: y), "num_data": count(3)}),
        Entry("Posterior.logdensity", lambda x, y: _posterior().logdensity(x, y), {"x": array(jnp.ones(2), (2,), (), (0,)), "y": array(jnp.ones(3), (3,), (), (0,), (3, 1))}),
        Entry("Posterior.full", lambda y: _posterior().full(y)(jnp.ones(2)), {"y": array(jnp.ones(6), (6,), (), (0,), (6, 1), (5,))}),
        Entry("sgrld", lambda posterior, **rest: gx.sgrld(posterior, **rest),
              {"posterior": posterior, "metric": anything(None), "step_size": schedule, "temperature": schedule, "clip_norm": number(1.0),
               "metric_warmup": count(0), "perturb_gradient": function(None)}),
        Entry("sghmc", lambda posterior, **rest: gx.sghmc(posterior, **rest),
              {"posterior": posterior, "manifold": anything(None), "metric": anything(None), "step_size": schedule, "friction": schedule, "temperature": schedule,
               "clip_norm": number(1.0), "metric_warmup": count(0)}),
        Entry("sgnht", lambda posterior, **rest: gx.sgnht(posterior, **rest),
              {"posterior": posterior, "manifold": anything(None), "step_size": schedule, "friction": number(0.1), "temperature": number(1.0),
               "rate": number(None)}),
        Entry("metrics.RMSProp", m.RMSProp, {"decay": number(0.9), "epsilon": number(1e-5), "gamma": choice("none"), "lag": flag(False)}),
        Entry("metrics.Wenzel", m.Wenzel, {"decay": number(0.9), "epsilon": number(1e-5), "update_every": count(2)}),
        Entry("metrics.Monge", m.Monge, {"alpha2": number(1.0), "decay": number(0.9), "gamma": choice("averaged"), "lag": flag(True), "normalize": number(None),
                                         "normalize_decay": number(0.9), "exact": flag(False)}),
        Entry("metrics.Shampoo", m.Shampoo, {"decay": number(0.9), "epsilon": number(1e-6), "block_size": count(8), "statistics_every": count(2),
                                             "update_every": count(2), "method": choice("eigh"), "variant": choice("shampoo"),
                                             "vectors": choice("full")}),
        Entry("metrics.Frozen", m.Frozen, {"metric": anything(m.Identity()), "after": count(3)}),
        Entry("schedules.after_warmup", schedules.after_warmup, {"schedule": function(schedules.constant(0.1)), "num_warmup": count(3)}),
        Entry("schedules.constant", schedules.constant, {"value": number(0.1)}),
        Entry("schedules.polynomial", schedules.polynomial, {"initial": number(0.1), "offset": number(10.0), "power": number(0.6)}),
        Entry("schedules.cyclical", schedules.cyclical, {"initial": number(0.1), "num_iterations": count(10)}),
    ]  # fmt: skip


@functools.cache
def _algorithm():
    return gx.hmc(_log_density, step_size=0.1, num_integration_steps=2)


@functools.cache
def _on_stiefel():
    return gx.hmc(
        lambda x: jnp.sum(x["x"][0]), manifold=gx.Product({"x": gx.Stiefel()}), step_size=0.1, num_integration_steps=2
    )


def _sampling() -> list[Entry]:
    counts = {"num_samples": count(3), "num_warmup": count(0), "num_chains": count(2), "thinning": count(1)}

    def sample(key, position, algorithm=None, **rest):
        with_good = _algorithm() if algorithm is None else algorithm
        return np.asarray(
            next(iter(gx.sample(key, with_good, position, progress=False, **rest)["posterior"].data_vars.values()))
        )

    sampled = {"key": KEY, "position": array(jnp.ones(2), (2,), (), (0,), (2, 2)), **counts}
    odd_algorithms = st.one_of(odd.functions, odd.choices, st.just(gx.hmc), st.just(gx.Stiefel()))
    return [
        Entry("sample", sample, sampled, is_costly=True),
        Entry("sample, algorithm", lambda algorithm: sample(jax.random.key(0), jnp.ones(2), algorithm, num_samples=2), {"algorithm": Argument(None, odd_algorithms)}, is_costly=True),
        Entry("sample, tree", lambda position: sample(jax.random.key(0), position, _on_stiefel(), num_samples=2, num_chains=2), {"position": _TREE}, is_costly=True),
        Entry("sample, options", lambda **rest: sample(jax.random.key(0), jnp.ones(2), num_samples=2, num_chains=2, **rest),
              {"batches": anything(None), "keep": function(None), "num_superchains": count(None), "stacked": flag(False),
               "checkpoint_seconds": number(60.0)}, is_costly=True),
        Entry("sample, density", lambda f: sample(jax.random.key(0), jnp.ones(2), gx.nuts(f, step_size=0.1), num_samples=2, num_chains=2), {"f": function(_log_density)}, is_costly=True),
    ]  # fmt: skip


def _scores() -> list[Entry]:
    s, c, p = gx.scores, gx.conformal, gx.predictive
    probabilities = np.full((4, 2), 0.5)
    table = ((4, 2), (4,), (0, 2), (4, 0), (3, 2), ())
    row = ((4,), (3,), (0,), (4, 1), ())
    labelled = {"probabilities": array(probabilities, *table), "labels": array(np.array([0, 1, 0, 1]), *row)}
    numbers_ = {"means": array(np.zeros(4), *row), "targets": array(np.ones(4), *row)}
    entries = [Entry(f"scores.{name}", getattr(s, name), labelled) for name in ("accuracy", "log_probability", "brier")]
    entries += [
        Entry(
            f"scores.{name}",
            functools.partial(_binned, getattr(s, name)),
            labelled | {"num_bins": count(5)},
        )
        for name in ("reliability", "ece")
    ]
    entries += [
        Entry("scores.mean_confidence", s.mean_confidence, {"probabilities": labelled["probabilities"]}),
        Entry("scores.rmse", s.rmse, numbers_),
        Entry("scores.mnll", s.mnll, {"log_density": numbers_["means"]}),
        Entry("conformal.conformal_quantile", c.conformal_quantile, {"scores": numbers_["means"], "coverage": number(0.9)}),
        Entry("conformal.prediction_sets", c.prediction_sets,
              {"calibration": labelled["probabilities"], "labels": labelled["labels"], "probabilities": labelled["probabilities"], "coverage": number(0.9),
               "score": choice("aps"), "random_state": count(0)}),
        Entry("conformal.prediction_intervals", c.prediction_intervals,
              {"calibration": numbers_["means"], "targets": numbers_["targets"], "means": numbers_["means"], "coverage": number(0.5),
               "calibration_scale": array(None, *row), "scale": array(None, *row)}),
        Entry("predictive.classes_from_logits", p.classes_from_logits, {"blocks": array(np.zeros((2, 4, 2)), (2, 4, 2), (4, 2), (4,), (0, 4, 2), (2, 0, 2), (2, 4, 0), ())}),
        Entry("predictive.numbers_from_means", lambda means, noise, targets: p.numbers_from_means([(means, noise)], targets=targets),
              {"means": array(np.zeros((2, 4)), (2, 4), (4,), (0, 4), ()), "noise": array(np.ones((2, 4)), (2, 4), (4,), (0, 4), ()), "targets": array(np.ones(4), *row)}),
        Entry("predictive.numbers_from_means, blocks", p.numbers_from_means, {"blocks": anything([(np.zeros((2, 4)), np.ones((2, 4)))])}),
    ]  # fmt: skip
    return entries


def _diagnostics() -> list[Entry]:
    x = _random.standard_normal((2, 20))
    frames = np.stack([np.stack([_X32] * 6)] * 2).astype(float)
    shapes = ((2, 20), (2, 20, 3), (20,), (2, 3), (2, 0), (0, 20), (1, 20), ())
    matrices = ((2, 6, 3, 2), (6, 3, 2), (3, 2), (2, 3), (0, 3, 2), (2, 6, 0, 0), ())
    draws = {"draws": array(x, *shapes)}
    d, a = diagnostics, alignment
    return [
        Entry("diagnostics.ess", d.ess, draws | {"method": choice("bulk"), "prob": number(None)}),
        Entry("diagnostics.mcse", d.mcse, draws | {"method": choice("mean"), "prob": number(None)}),
        Entry("diagnostics.rhat", d.rhat, draws),
        Entry("diagnostics.nested_rhat", d.nested_rhat, draws | {"num_superchains": count(2)}),
        Entry("diagnostics.e_bfmi", lambda draws: d.e_bfmi(draws), draws),
        Entry("diagnostics.summarize", lambda draws: d.summarize({"x": draws}), draws),
        Entry("diagnostics.summarize, names", d.summarize, {"draws": anything({"x": x})}),
        Entry("diagnostics.check", lambda draws: d.check({"x": draws}), draws),
        Entry("alignment.align_angles", a.align_angles, draws),
        Entry("alignment.align_signs", a.align_signs, {"draws": array(frames, *matrices), "reference": array(None, (3, 2), (2, 3), (0, 0))}),
        Entry("alignment.align_rotation", a.align_rotation, {"draws": array(frames, *matrices), "reference": array(None, (3, 2), (2, 3), (0, 0))}),
        Entry("alignment.mean_orthonormal", a.mean_orthonormal, {"draws": array(frames, *matrices), "up_to": choice("signs")}),
        Entry("alignment.mean_subspace", a.mean_subspace, {"draws": array(frames, *matrices)}),
        Entry("alignment.principal_angles", a.principal_angles, {"x": array(frames, *matrices), "reference": array(_X32.astype(float), *matrices)}),
        Entry("alignment.subspace_distance", a.subspace_distance, {"x": array(frames, *matrices), "y": array(_X32.astype(float), *matrices)}),
        Entry("alignment.invariant_draws", a.invariant_draws, {"draws": array(frames, *matrices), "name": choice("x"), "up_to": choice("rotation"), "num_directions": count(2)}),
    ]  # fmt: skip


def _networks() -> list[Entry]:
    nn = gx.nn
    size, image = (
        {"in_features": count(4), "out_features": count(3), "key": KEY},
        {"in_channels": count(2), "out_channels": count(3), "key": KEY},
    )
    named = {
        "OrthogonalLinear": size | {"gain": number(1.0), "use_bias": flag(True), "dtype": choice(np.float32)},
        "LowRankLinear": size | {"rank": count(2), "use_bias": flag(True)},
        "BottleneckLinear": size | {"rank": count(2)},
        "MLP": size | {"widths": Argument((4,), st.one_of(odd.arrays(), odd.counts, st.sampled_from([(0,), (-1,), (2.5,), ("a",), (None,), (2**62,)]))),
                       "activation": function(jax.nn.relu), "orthogonal": flag(False), "rank": count(None)},
        "OrthogonalConv2d": image | {"kernel_size": count(3), "stride": count(1), "padding": count(0)},
        "FilterResponseNorm": {"num_channels": count(3), "epsilon": number(1e-6)},
        "WHVILinear": size | {"covariance": choice("diagonal"), "rank": count(2), "num_flows": count(0), "scales": choice("optimized"), "prior_variance": number(1.0),
                              "initial_deviation": number(0.1)},
        "WHVIConv2d": image | {"kernel_size": count(3), "stride": count(1), "padding": count(0)},
        "MeanFieldLinear": size | {"prior_variance": number(1.0), "initial_deviation": number(0.1), "gain": number(1.0)},
        "FullCovarianceLinear": size | {"prior_variance": number(1.0), "initial_deviation": number(0.1)},
        "DropoutLinear": size | {"rate": number(0.05), "prior_variance": number(1.0)},
        "RandomFeatures": {"in_features": count(3), "num_features": count(4), "key": KEY, "kernel": choice("rbf"), "lengthscale": number(1.0), "amplitude": number(1.0)},
        "RandomFeatureGP": size | {"num_features": count(4), "kernel": choice("rbf"), "weights": choice("mean-field"), "lengthscale": number(1.0)},
        "Gaussian": {"scale": number(1.0), "mean": number(0.0)},
        "Laplace": {"scale": number(1.0)},
        "StudentT": {"degrees_of_freedom": number(3.0), "scale": number(1.0)},
        "CorrelatedNormal": {"scale": number(1.0), "length": number(1.0), "covariance": choice("matern12")},
        "SingularValues": {"num_rows": count(3), "num_columns": count(2), "scale": number(1.0)},
        "Horseshoe": {"scale": number(1.0), "local": flag(False), "least_scale": number(0.1)},
        "HierarchicalHorseshoe": {"scale": number(1.0), "local": flag(False), "least_scale": number(0.1)},
        "Priors": {"rules": anything(None)},
        "GaussianLikelihood": {"noise": number(1.0)},
        "StudentTLikelihood": {"noise": number(1.0), "degrees_of_freedom": number(4.0)},
        "PoissonLikelihood": {"base_rate": number(2.0)},
        "NegativeBinomialLikelihood": {"dispersion": number(0.5), "base_rate": number(2.0)},
        "CustomLikelihood": {"log_density_fn": function(lambda f, y: -f), "distribution_fn": function(None), "outputs_per_example": count(None)},
        "WithCutPoints": {"network": anything(jnp.ones(2)), "num_classes": count(4)},
        "WithNoise": {"network": anything(jnp.ones(2)), "log_noise": number(0.0)},
    }  # fmt: skip
    network = nn.MLP(2, 1, widths=(3,), key=jax.random.key(0))
    x = array(jnp.ones(2), (2,), (), (3,), (0,), (2, 2))
    layers = {
        "MLP": network,
        "OrthogonalLinear": nn.OrthogonalLinear(2, 3, key=jax.random.key(0)),
        "LowRankLinear": nn.LowRankLinear(2, 3, rank=1, key=jax.random.key(0)),
        "WHVILinear": nn.WHVILinear(2, 3, key=jax.random.key(0)),
        "MeanFieldLinear": nn.MeanFieldLinear(2, 3, key=jax.random.key(0)),
    }
    entries = [Entry(f"nn.{name}", getattr(nn, name), arguments) for name, arguments in named.items()]
    entries += [
        Entry(f"nn.{name} of x", lambda x, key, layer=layer: layer(x, key=key), {"x": x, "key": KEY})
        for name, layer in layers.items()
    ]
    entries += [
        Entry("nn.geometry", nn.geometry, {"network": anything(layers["OrthogonalLinear"]), "stiefel": anything(None)}),
        Entry(
            "nn.log_prior",
            nn.log_prior,
            {
                "network": Argument(network_arrays(network), st.one_of(odd.trees(), odd.functions)),
                "rules": anything(None),
            },
        ),
        Entry(
            "nn.variational",
            nn.variational,
            {"network": anything(network), "inference": choice("mean-field"), "key": KEY},
        ),
        Entry("nn.total_kl", nn.total_kl, {"network": anything(layers["WHVILinear"])}),
    ]
    return entries


def network_arrays(network):
    return eqx.filter(network, eqx.is_inexact_array)


def _variational() -> list[Entry]:
    x, y = np.linspace(-1, 1, 6, dtype=np.float32)[:, None], np.zeros(6, np.float32)
    network = gx.nn.WithNoise(gx.nn.MeanFieldLinear(1, 1, key=jax.random.key(0)))

    def fit(x, y, key, network, likelihood, **rest):
        return gx.vi.fit(key, network, likelihood, (x, y), progress=False, **rest).history.elbo

    mean = np.zeros(3, np.float32)
    return [
        Entry("vi.fit", fit, {
            "x": array(x, (6, 1), (6,), (0, 1), (5, 1), ()), "y": array(y[:, None], (6, 1), (6,), (0,), (5,), ()), "key": KEY, "network": anything(network),
            "likelihood": function(gx.nn.GaussianLikelihood()), "num_steps": count(2), "batch_size": count(3),
            "learning_rate": Argument(1e-3, st.one_of(odd.numbers, odd.functions)), "num_samples": count(1), "kl_warmup": count(0),
            "held": anything(None), "window": count(None), "patience": count(None), "optimizer": anything(None), "validation": anything(None),
            "checkpoint_seconds": number(60.0)}, is_costly=True),
        Entry("vi.GaussianOver", gx.vi.GaussianOver, {"position": _TREE, "covariance": choice("diagonal"), "scale": number(0.1), "prior_variance": number(1.0), "rank": count(1)}),
        Entry("vi.gaussian", gx.vi.gaussian, {"covariance": choice("full"), "mean": array(mean, (3,), (), (0,)), "scale": number(0.1), "rank": count(1)}),
        Entry("vi.predict", gx.vi.predict, {"key": KEY, "network": anything(network.network), "x": array(x, (6, 1), (6,), (0, 1), ()), "num_samples": count(2)}, is_costly=True),
        Entry("vi.adam", gx.vi.adam, {"learning_rate": function(lambda i: 0.1), "beta1": number(0.9), "beta2": number(0.9), "epsilon": number(1e-8)}),
    ]  # fmt: skip


def _data() -> list[Entry]:
    x = np.ones((6, 2), np.float32)
    return [
        Entry("data.batches", gx.data.batches, {"data": Argument((x, x), odd.trees()), "batch_size": count(3), "order": choice("epochs")}),
        Entry("Batches.draw", lambda data, size, order: gx.data.batches(data, batch_size=size, order=order).draw(jax.random.key(0), jnp.int32(1)),
              {"data": Argument((x, x), odd.trees()), "size": Argument(3, st.sampled_from([1, 2, 6])), "order": Argument("epochs", st.just("independent"))}),
        Entry("data.stream", lambda start, first: gx.data.stream(start).read(first, 2), {"start": function(lambda n: iter([x] * 9)), "first": Argument(0, st.sampled_from([0, 3]))}),
        Entry("data.load", gx.data.load, {"name": choice("wine")}),
        Entry("data.fetch", gx.data.fetch, {"name": choice("wine")}),
        Entry("data.describe", gx.data.describe, {"name": choice("wine")}),
        Entry("data.supervised", lambda **rest: gx.data.supervised("wine", **rest),
              {"split": count(0), "num_validation": count(2), "test_fraction": number(0.1), "dtype": choice(np.float32), "standardize": flag(True)}),
        Entry("data.Dataset.split", lambda k: gx.data.load("wine").split(k) if k != "none" else None, {"k": Argument("none", odd.choices)}),
        Entry("contacts.count_windows", count_windows,
              {"times": array(np.arange(4.0), (4,), (3,), (0,), (4, 1), ()), "first": array(np.array(list("abab")), (4,), (3,), (0,), ()),
               "second": array(np.array(list("bcab")), (4,), (0,), (4, 1)), "width": number(2.0)}),
    ]  # fmt: skip


def _estimators() -> list[Entry]:
    m = gx.models
    x, y = _random.standard_normal((12, 3)), _random.standard_normal(12)
    labels = np.arange(12) % 2
    symmetric = np.float64(np.add.outer(np.arange(6), np.arange(6)) % 2)
    contacts = np.ones((5, 3, 3))
    table = ((12, 3), (12,), (0, 3), (12, 0), (3, 2), (12, 3, 1), ())
    run = {
        "num_warmup": count(4),
        "num_samples": count(4),
        "num_chains": count(2),
        "random_state": count(0),
        "progress": flag(False),
    }
    exact = run | {"target_acceptance_rate": number(0.8)}
    stochastic = run | {
        "step_size": number(1e-3),
        "friction": number(0.1),
        "temperature": number(1.0),
        "batch_size": count(4),
        "thinning": count(1),
    }
    mlp = stochastic | {
        "widths": Argument((3,), st.one_of(odd.counts, odd.arrays(), st.sampled_from([(0,), (-1,), (2.5,), ("a",), (None,)]))),
        "activation": choice("relu"), "rank": count(None), "prior": choice("gaussian"), "prior_scale": number("fan_in"), "inference": choice("mcmc"),
        "sampler": choice("sghmc"), "metric": choice("identity"), "calibration_fraction": number(0.0)}  # fmt: skip
    X = array(x, *table)
    numbers_, classes = array(y, (12,), (12, 1), (0,), (3,), ()), array(labels, (12,), (12, 1), (0,), (3,), ())
    pairs = np.array([[f"u{i % 4}", f"i{i % 3}"] for i in range(12)])
    named = {
        "BayesianPCA": ({"n_components": count(1), "noise": choice("diagonal"), "mean_prior_scale": number(1.0), "scale_prior_scale": number(1.0), "noise_prior_scale": number(1.0)} | exact, {"X": X}),
        "Eigenmodel": ({"rank": count(1), "link": choice("probit"), "eigenvalue_scale": number(1.0), "intercept_scale": number(10.0)} | exact,
                       {"X": array(symmetric, (6, 6), (6, 5), (0, 0), (6,), (1, 1))}),
        "NetworkHMM": ({"n_states": count(2), "rank": count(1), "counts": choice("poisson"), "num_starts": count(1), "transition_concentration": number(1.0)} | exact,
                       {"X": array(contacts, (5, 3, 3), (3, 3), (5, 3, 2), (0, 3, 3), (5, 0, 0))}),
        "HierarchicalCCA": ({"n_shared": count(1), "n_view_1": count(1), "n_view_2": count(1), "pooling": choice("separate"), "views": anything(((0, 1), (2, 3)))} | exact,
                            {"X": array(_random.standard_normal((12, 4)), (12, 4), (12, 3), (12,), (0, 4)), "groups": array(labels, (12,), (3,), (0,), (12, 1))}),
        "UnitNetworkRegressor": ({"n_hidden": count(2), "weights": choice("unit"), "bias": choice("joint"), "bias_scale": number(1.0), "noise_scale": number(1.0)} | exact,
                                 {"X": X, "y": numbers_}),
        "BayesianMLPClassifier": (mlp, {"X": X, "y": classes}),
        "BayesianMLPRegressor": (mlp | {"noise": number(None)}, {"X": X, "y": numbers_}),
        "LowRankFactorization": ({"rank": count(1), "factorization": choice("svd"), "interaction_scale": number(0.5), "offset_scale": number(0.5)} | stochastic,
                                 {"X": array(pairs, (12, 2), (12, 3), (12,), (0, 2)), "y": numbers_}),
    }  # fmt: skip
    entries = []
    for name, (options, arguments) in named.items():
        make = getattr(m, name)

        def fit(make=make, arguments=tuple(arguments), **given):
            model = make(**{k: v for k, v in given.items() if k not in arguments})
            return np.asarray(model.fit(*(given[k] for k in arguments)).posterior_.attrs["num_warmup"])

        entries.append(Entry(f"models.{name}.fit", fit, options | arguments, is_costly=True, validators=SCIKIT_LEARN))
    return entries


ENTRIES: tuple[Entry, ...] = tuple(
    entry
    for part in (
        _manifolds,
        _transforms,
        _distributions,
        _hadamard,
        _samplers,
        _sampling,
        _scores,
        _diagnostics,
        _networks,
        _variational,
        _data,
        _estimators,
    )
    for entry in part()
)
"""Everything that is put to the test."""
