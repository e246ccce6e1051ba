"""Planted faults, each with the check of the test suites that must fail because of it.

A row replaces a piece of the real code and runs one check. The checks are those that the tests run on the code as it
is, so a row that is not caught is a blind spot of the tests.

Two things that look like faults are none and have no row: a gradient that is not projected in the canonical metric
(the energy does not see the symmetric part of x^T r, and the flow leaves it alone; for sghmc, which has no energy, that
holds in every metric of the Stiefel manifold), and a turning criterion that looks
at one end in the order of time, at the whole tree and at its pieces alike (every point of a tree would grow the same
tree).
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

import geodax as gx
from geodax import _tree, posterior
from geodax.geometry import flows, manifolds, sphere, stiefel
from geodax.geometry.linalg import adjoint, sym
from geodax.geometry.transforms import cayley, givens, householder, intervals, polar, unconstrained
from geodax.interop.numpyro import constraints, reparam
from geodax.mcmc import integrators, isokinetic, joint_warmup, kernels, lengths, mass_matrix, trajectories, warmup
from geodax.nn import dropout, hadamard, hadamard_moments, mean_field
from geodax.sgmcmc import gradients, mass
from geodax.sgmcmc.metrics import diagonal, monge, shampoo, sizes
from geodax.vi import families, modules
from geodax.vi.flows import Flowed, PlanarFlow
from tests.geometry import test_manifolds
from tests.geometry.transforms import test_givens, test_transforms
from tests.interop import test_numpyro_sites
from tests.mcmc import (
    test_frame_scales,
    test_isokinetic,
    test_joint_warmup,
    test_kernels,
    test_mass_matrix,
    test_mclmc,
    test_warmup,
)
from tests.nn import test_hadamard_layers, test_variational_layers
from tests.sgmcmc import test_metric_formulas, test_scalings, test_sghmc
from tests.suites import (
    test_flows,
    test_integrators,
    test_known_targets,
    test_stochastic_laws,
    test_vanishing_gradients,
)
from tests.suites.cases import named_case, quadratic, stiefel_case
from tests.vi import test_families, test_fit


class Row(NamedTuple):
    """A planted fault: how it is planted, and the check that must fail."""

    name: str
    plant: Callable  # of pytest's monkeypatch
    check: Callable  # of a random key


# ------------------------------------------------------------------------------------------------ faults


def full_first_kick(patch):
    original = integrators.leapfrog

    def leapfrog(evaluate, manifold):
        step = original(evaluate, manifold)

        def kicked(state, step_size, mass):
            half = jax.tree.map(lambda s: 0.5 * s * step_size.astype(s.dtype), mass.scale)
            kick = manifold.scaled(state.position, state.logdensity_grad, half)
            return step(state._replace(momentum=_tree.add(state.momentum, kick)), step_size, mass)

        return kicked

    patch.setattr(integrators, "leapfrog", leapfrog)
    patch.setattr(kernels, "leapfrog", leapfrog)


def gradient_not_conjugated(patch):
    def logdensity_and_gradient(logdensity_fn, manifold):
        value_and_grad = jax.value_and_grad(logdensity_fn)

        def evaluate(position):
            value, gradient = value_and_grad(position)
            return value, manifold.gradient(position, gradient)

        return evaluate

    patch.setattr(integrators, "logdensity_and_gradient", logdensity_and_gradient)


def dimension_for_power_of_the_speed(patch):
    original = isokinetic.Isokinetic.turn

    def turn(self, x, r, f):
        turned = original(self, x, r, f)
        dim = self.manifold.dim(x)
        return turned._replace(work=r.work + (turned.work - r.work) * dim / (dim - 1))

    patch.setattr(isokinetic.Isokinetic, "turn", turn)


def kick_in_the_ambient_metric(patch):
    original = isokinetic.Isokinetic.turn

    class Ambient(gx.Stiefel):
        def velocity(self, x, r):
            return r

    patch.setattr(
        isokinetic.Isokinetic, "turn", lambda self, x, r, f: original(isokinetic.Isokinetic(Ambient()), x, r, f)
    )


def speed_not_fixed(patch):
    patch.setattr(isokinetic.Isokinetic, "normalized", lambda self, x, r: r)


def complex_entries_counted_once(patch):
    patch.setattr(manifolds.Euclidean, "dim", lambda self, x: sum(leaf.size for leaf in jax.tree.leaves(x)))


def both_parts_in_one_scale(patch):
    patch.setattr(
        manifolds.Euclidean,
        "degrees_of_freedom",
        lambda self, x: jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.real.dtype), x),
    )


def freedom_of_real_frames(patch):
    original = stiefel.Stiefel.degrees_of_freedom
    patch.setattr(stiefel.Stiefel, "degrees_of_freedom", lambda self, x: original(self, jnp.zeros_like(x.real)))


def scales_of_pairs_as_of_columns(patch):
    def scaled(x, u, scale):
        row = jnp.diagonal(scale, axis1=-2, axis2=-1)[..., None, :] if scale.ndim else scale
        return row * u

    patch.setattr(flows, "scaled", scaled)
    patch.setattr(stiefel, "scaled", scaled)


def momentum_of_the_other_scales(patch):
    """It turns by the momentum itself, not by the velocity that moves the frame."""
    original = flows._cayley_low_rank

    def cayley(x, r, t):
        return original(x, r, t)[0], original(x, r, jnp.mean(t))[1]

    patch.setattr(flows, "_cayley_low_rank", cayley)


def loosest_bound_of_a_product(patch):
    def max_time(self, x, scale):
        return max(m.max_time(x, s) for m, _, x, s in self._parts(x, scale))

    patch.setattr(gx.Product, "max_time", max_time)


def qr_without_signs(patch):
    patch.setattr(stiefel, "qr_positive", lambda x: jnp.linalg.qr(x)[0])


def gradient_not_projected(patch):
    patch.setattr(stiefel.Stiefel, "project", lambda self, x, u: u)


def energy_of_the_other_metric(patch):
    patch.setattr(stiefel.Stiefel, "kinetic_energy", lambda self, x, r: 0.5 * _tree.dot(r, r))


def skew_variance_doubled(patch):
    patch.setattr(stiefel.Stiefel, "momentum", lambda self, x, z: z - x @ sym(adjoint(x) @ z))


def momentum_drawn_off_the_tangent_space(patch):
    patch.setattr(stiefel.Stiefel, "momentum", lambda self, x, z: z)


def velocity_for_momentum(patch):
    original = stiefel.Stiefel.velocity
    patch.setattr(stiefel.Stiefel, "velocity", lambda self, x, r: original(self, x, r) - x @ (adjoint(x) @ r))


def cayley_with_the_wrong_sign(patch):
    for name in ("_cayley_dense", "_cayley_low_rank"):
        original = getattr(flows, name)
        patch.setattr(flows, name, lambda x, r, t, original=original: original(x, r, -t))


def momentum_projected_instead_of_rotated(patch):
    original = flows.Cayley.__call__

    def projected(self, x, r, t, *, metric):
        moved, _ = original(self, x, r, t, metric=metric)
        return moved, r - moved @ sym(adjoint(moved) @ r)

    patch.setattr(flows.Cayley, "__call__", projected)


def gram_blocks_replaced_by_identities(patch):
    """The 2p x 2p solve of the literature, with x^T x = I and x^T r = A put in by hand."""

    def cayley(x, r, t):
        p, t = x.shape[-1], t.ravel()[0]  # all scales are equal
        a, s, identity = adjoint(x) @ r, adjoint(r) @ r, jnp.eye(p, dtype=x.dtype)
        vu = jnp.block([[a, identity], [-s, a]])
        vy = jnp.block([[identity, a], [a, -s]])
        coefficients = jnp.linalg.solve(jnp.eye(2 * p, dtype=x.dtype) - 0.5 * t * vu, t * vy)
        moved = jnp.concatenate([r, x], axis=-1) @ coefficients
        return x + moved[..., :p], r + moved[..., p:]

    patch.setattr(flows, "_cayley_low_rank", cayley)


def undefined_energy_counts_as_none(patch):
    patch.setattr(trajectories, "energy_error", lambda old, new: jnp.where(jnp.isnan(new - old), 0.0, new - old))


def no_look_at_the_manifold(patch):
    patch.setattr(kernels, "_reject_if_off_manifold", lambda result, start, manifold: result)


def wrong_sign_of_the_energy_error(patch):
    patch.setattr(trajectories, "energy_error", lambda old, new: old - new)


def every_trajectory_accepted(patch):
    patch.setattr(trajectories, "energy_error", lambda old, new: jnp.zeros_like(new))


def every_reflection_accepted(patch):
    def reflect(key, result, evaluate, manifold):
        position = manifold.reflect(key, result.position)
        logdensity, gradient = evaluate(position)
        return result._replace(position=position, logdensity=logdensity, logdensity_grad=gradient)

    patch.setattr(kernels, "_reflect", reflect)


def no_reflection(patch):
    patch.setattr(kernels, "_reflect", lambda key, result, evaluate, manifold: result)


def one_key_for_all_leaves(patch):
    def standard_normal(key, like):
        return jax.tree.map(lambda leaf: jax.random.normal(key, leaf.shape, leaf.dtype), like)

    patch.setattr(manifolds, "standard_normal", standard_normal)


def one_key_for_everything(patch):
    patch.setattr(jax.random, "split", lambda key, num=2: jnp.broadcast_to(key, (num,)))


def newest_point_always_taken(patch):
    patch.setattr(trajectories, "uniform", lambda words, counter, stream, dtype: jnp.asarray(1e-300, dtype))


def trees_grow_forwards_only(patch):
    key_words = trajectories.key_words
    patch.setattr(trajectories, "key_words", lambda key: (key_words(key)[0], jnp.uint32(2**32 - 1)))


def _from_the_first_end(first, last):
    return jnp.dot(first.velocity, last.offset - first.offset) <= 0


def _with_criterion(criterion, turns_at):
    """Checks within a new half by another criterion."""

    def judged(*arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trajectories, "_turns", criterion)
            return turns_at(*arguments)

    return judged


def turning_within_looks_at_the_first_point_only(patch):
    """First in the order of growth: the piece is judged otherwise when the tree grows the other way."""
    patch.setattr(trajectories, "_turns_at", _with_criterion(_from_the_first_end, trajectories._turns_at))


def turning_looks_at_one_end_of_the_whole_tree(patch):
    """Its first point in time; the pieces within are judged by both ends, so that a tree and a piece differ."""
    patch.setattr(trajectories, "_turns_at", _with_criterion(trajectories._turns, trajectories._turns_at))
    patch.setattr(trajectories, "_turns", _from_the_first_end)


def no_turning_within(patch):
    """The check of the balanced pieces within a new half left out."""
    patch.setattr(trajectories, "_turns_at", lambda pieces, neighbours, index: jnp.zeros((), bool))


def log_volume_left_out(patch):
    original = unconstrained.Unconstrained._forward
    patch.setattr(unconstrained.Unconstrained, "_forward", lambda self, z: (original(self, z)[0], []))


def cut_angles_replaced(patch, **changes: Callable):
    original = intervals.cut_angles

    def cut_angles(z, widths):
        cut = original(z, widths)
        return cut._replace(**{name: change(getattr(cut, name)) for name, change in changes.items()})

    patch.setattr(intervals, "cut_angles", cut_angles)


def volume_of_rotations_with_the_wrong_sign(patch):
    cut_angles_replaced(patch, log_cosine=lambda x: -x)


def slope_of_the_logistic_left_out(patch):
    cut_angles_replaced(patch, log_slope=jnp.zeros_like)


def sines_counted_as_constants(patch):
    original = givens.rotate
    patch.setattr(givens, "rotate", lambda c, s, n, p: original(c, jax.lax.stop_gradient(s), n, p))


def law_of_the_redundant_part_left_out(patch):
    for module in (polar, householder):
        patch.setattr(module, "standard_normal_log_density", lambda z: jnp.zeros((), z.dtype))


def mirrors_are_the_vectors_themselves(patch):
    """A product of reflections by uniform directions, whose first column is not uniform."""
    patch.setattr(householder, "_mirrors", lambda x, *_: x / jnp.linalg.norm(x, axis=0, keepdims=True))


def cayley_exponent_off_by_one(patch):
    original = cayley.CayleyChart._log_volume
    patch.setattr(
        cayley.CayleyChart,
        "_log_volume",
        lambda self, log_determinant: original(self, log_determinant) + log_determinant,
    )


def length_slope_upside_down(patch):
    original = lengths._jump_moments

    def upside_down(*arguments):
        moments = original(*arguments)
        return moments._replace(distance_slope=-moments.distance_slope, spread_slope=-moments.spread_slope)

    patch.setattr(lengths, "_jump_moments", upside_down)


def length_slope_without_its_time(patch):
    """Derivatives with respect to the time instead of its logarithm."""
    original = lengths._jump_moments

    def not_logarithmic(start, end, time, *rest):
        moments = original(start, end, time, *rest)
        return moments._replace(distance_slope=moments.distance_slope / time, spread_slope=moments.spread_slope / time)

    patch.setattr(lengths, "_jump_moments", not_logarithmic)


def times_spread_too_far(patch):
    patch.setattr(lengths, "LONGEST", lengths.LONGEST + lengths.SHORTEST)


def length_without_its_cost(patch):
    """The end of the climb pulled up by the slope that the cost takes away."""
    original = joint_warmup._ratio
    patch.setattr(joint_warmup, "_ratio", lambda slope, moment: original(slope, moment) + 0.5)


def energy_of_the_other_end(patch):
    original = trajectories.metropolis

    def metropolis(key, start, end, num_steps, manifold):
        result = original(key, start, end, num_steps, manifold)
        both = integrators.energy(start, manifold) + integrators.energy(end, manifold)
        return result._replace(energy=both - result.energy)

    patch.setattr(trajectories, "metropolis", metropolis)


def energy_before_the_reflection(patch):
    original = kernels._reflect
    patch.setattr(
        kernels,
        "_reflect",
        lambda key, result, *rest: original(key, result, *rest)._replace(energy=result.energy),
    )


def center_of_the_chains_forgotten(patch):
    original = joint_warmup._climb

    def climb(*arguments):
        search = original(*arguments)
        return search._replace(center=_tree.zeros_like(search.center))

    patch.setattr(joint_warmup, "_climb", climb)


def anchor_that_moves(patch):
    original = warmup.add_draws

    def add_draws(window, manifold, positions, gradients):
        return original(window._replace(anchor=jax.tree.map(lambda x: x[0], positions)), manifold, positions, gradients)

    patch.setattr(test_warmup, "add_draws", add_draws)


def first_copy_always_reflected(patch):
    original = stiefel.Stiefel.reflect
    patch.setattr(
        stiefel.Stiefel,
        "reflect",
        lambda self, key, x: x.at[:1].set(original(self, key, x[:1])) if x.ndim > 2 else original(self, key, x),
    )


def prior_variance_upside_down_in_natural_steps(patch):
    original = gx.vi.vogn
    patch.setattr(
        gx.vi, "vogn", lambda *a, prior_variance, **options: original(*a, prior_variance=1 / prior_variance, **options)
    )


def memories_of_natural_steps_exchanged(patch):
    original = gx.vi.vogn
    patch.setattr(gx.vi, "vogn", lambda *a, beta1, beta2, **options: original(*a, beta1=beta2, beta2=beta1, **options))


def scales_of_one_chain(patch):
    original = warmup.add_draws
    patch.setattr(
        test_warmup,
        "add_draws",
        lambda window, manifold, *draws: original(window, manifold, *jax.tree.map(lambda x: x[:1], draws)),
    )


def correlations_of_draws_alone(patch):
    def mean(draws, gradients):
        del gradients
        return jnp.linalg.eigh(draws)

    patch.setattr(mass_matrix, "_geometric_mean", mean)


def correlations_only_in_the_flow(patch):
    original = integrators.correlated
    calls = []

    def correlated(mass, tree, flat):
        calls.append(tree)
        return tree if len(calls) % 3 == 1 else original(mass, tree, flat)  # kick, flow, kick

    patch.setattr(integrators, "correlated", correlated)


def batch_not_scaled_to_the_data(patch):
    def logdensity(self, position, batch):
        return self._prior(position) + jnp.sum(self.likelihoods(position, batch))

    patch.setattr(posterior.Posterior, "logdensity", logdensity)


def divergence_of_the_wrong_sign(patch):
    original = monge.Monge.drift
    patch.setattr(monge.Monge, "drift", lambda *arguments: jax.tree.map(jnp.negative, original(*arguments)))


def lag_left_out_of_the_window(patch):
    original = diagonal.RMSProp.drift

    def drift(self, *arguments):
        unlagged = diagonal.RMSProp(decay=self.decay, epsilon=self.epsilon, gamma=self.gamma)
        return original(unlagged, *arguments)

    patch.setattr(diagonal.RMSProp, "drift", drift)


def averages_begun_at_zero(patch):
    original = diagonal.Wenzel.init

    def init(self, position):
        state = original(self, position)
        return state._replace(means=_tree.zeros_like(state.means))

    patch.setattr(diagonal.Wenzel, "init", init)


def epsilon_after_the_root(patch):
    def rescaled(self, state, sizes):
        roots = [jnp.sqrt(mean) + self.epsilon for mean in state.means]
        return state._replace(scales=tuple(root / jnp.min(jnp.stack(roots)) for root in roots))

    patch.setattr(diagonal.Wenzel, "_rescaled", rescaled)


def one_block_too_many(patch):
    original = shampoo._block_shape

    def block_shape(size, largest):
        count = original(size, largest)[0] + 1
        return count, -(-size // count)

    patch.setattr(shampoo, "_block_shape", block_shape)


def unknown_statistics_taken_for_small_ones(patch):
    patch.setattr(sizes.Sizes, "known", lambda self: (jnp.ones(self.squares.shape, bool), jnp.zeros(())))


def metric_of_the_sum(patch):
    original = mass.Mass.update
    patch.setattr(mass.Mass, "update", lambda self, *arguments: original(self._replace(num_data=1), *arguments))


def clipped_by_the_sum(patch):
    original = gradients.norm
    patch.setattr(gradients, "norm", lambda gradient: test_scalings.NUM_DATA * original(gradient))


def deduction_times(factor: float) -> Callable:
    original = manifolds.Euclidean.noise

    def noise(self, x, z, variance, deducted):
        return original(self, x, z, variance, factor * deducted)

    return lambda patch: patch.setattr(manifolds.Euclidean, "noise", noise)


def batch_gradient_not_conjugated(patch):
    original = gradients.Target.gradient

    def gradient(self, *arguments):
        potential, found = original(self, *arguments)
        return potential, jax.tree.map(jnp.conj, found)

    patch.setattr(gradients.Target, "gradient", gradient)


def force_not_conjugated(patch):
    original = mass.Mass.force
    patch.setattr(
        mass.Mass, "force", lambda self, state, x, gradient: original(self, state, x, jax.tree.map(jnp.conj, gradient))
    )


def noise_isotropic(patch):
    patch.setattr(
        stiefel.Stiefel, "noise", lambda self, x, z, variance, deducted: jnp.sqrt(variance).astype(x.dtype) * z
    )


def noise_of_the_other_order(patch):
    """The exact Ornstein-Uhlenbeck variance 2 alpha - alpha^2 in the paper's order, alpha being 0.5."""
    original = stiefel.Stiefel.noise
    patch.setattr(
        stiefel.Stiefel, "noise", lambda self, x, z, variance, taken: original(self, x, z, 0.75 * variance, taken)
    )


def kick_of_the_other_scheme(patch):
    """What the literature calls the projection: it doubles the skew part."""
    patch.setattr(stiefel.Stiefel, "gradient", lambda self, x, g: g - x @ (adjoint(g) @ x))


def momentum_only_projected(patch):
    original = flows.Polar.__call__
    patch.setattr(
        flows.Polar, "__call__", lambda self, x, r, t, *, metric: (original(self, x, r, t, metric=metric)[0], r)
    )


def kick_not_projected(patch):
    patch.setattr(sphere.Sphere, "gradient", lambda self, x, g: g)


def one_beta_for_all_parts(patch):
    patch.setattr(stiefel.Stiefel, "_skew_variances", lambda self: (0.5, 0.5))


def determinant_of_the_other_sign(patch):
    original = families._kl
    patch.setattr(families, "_kl", lambda trace, mean, log_det, variance: original(trace, mean, -log_det, variance))


def divergence_of_the_prior_only(patch):
    """No entropy of the posterior."""
    patch.setattr(
        families.DiagonalGaussian,
        "kl",
        lambda self, variance=1.0, *, key=None: (
            0.5 * jnp.sum((self.mean**2 + jnp.exp(2 * self.log_scale)) / variance - 1.0 + jnp.log(variance))
        ),
    )


def prior_variance_taken_for_a_deviation(patch):
    for family in (families.DiagonalGaussian, families.FullGaussian, families.LowRankGaussian):
        original = family.kl
        patch.setattr(
            family, "kl", lambda self, variance=1.0, *, key=None, original=original: original(self, variance**2)
        )


def volume_of_flows_left_out(patch):
    original = Flowed.push
    patch.setattr(Flowed, "push", lambda self, z: (original(self, z)[0], jnp.zeros(z.shape[:-1], z.dtype)))


def volume_of_a_flow_upside_down(patch):
    original = PlanarFlow.__call__

    def upside_down(self, z):
        image, log_volume = original(self, z)
        return image, -log_volume

    patch.setattr(PlanarFlow, "__call__", upside_down)


def flow_that_may_fold(patch):
    """The direction as it is, not made valid."""
    patch.setattr(PlanarFlow, "_valid", lambda self: (self.u, 1.0 + jnp.sum(self.w * self.u, axis=-1)))


def divergence_of_the_first_layer_only(patch):
    original = modules.total_kl

    def first(network, *, key=None):
        found = [
            node for node in jax.tree.leaves(network, is_leaf=modules.is_variational) if modules.is_variational(node)
        ]
        return original(found[0], key=key)

    patch.setattr(gx.nn, "total_kl", first)


def biases_left_out_of_the_divergence(patch):
    patch.setattr(mean_field.AbstractMeanField, "kl", lambda self, *, key=None: self.weight.kl(self.prior_variance))


def scales_left_out_of_the_divergence(patch):
    patch.setattr(hadamard.HadamardWeight, "kl", lambda self, key=None: self.g.kl(self.prior_variance, key=key))


def dropout_divergence_of_dropped_weights(patch):
    original = dropout.AbstractDropout.kl

    def wrong(layer, *, key=None):
        return original(layer) - 0.5 * layer.rate / (1 - layer.rate) * jnp.sum(layer.weight**2) / layer.prior_variance

    patch.setattr(dropout.AbstractDropout, "kl", wrong)


def dropout_not_scaled(patch):
    original = dropout.AbstractDropout._dropped
    patch.setattr(dropout.AbstractDropout, "_dropped", lambda self, *given: original(self, *given) * (1.0 - self.rate))


def divergence_warmed_up_one_step_late(patch):
    original = gx.vi.ascent

    def late(*arguments, **options):
        algorithm = original(*arguments, **options)
        return algorithm._replace(step=lambda key, state, batch, i: algorithm.step(key, state, batch, i - 1))

    patch.setattr(gx.vi, "ascent", late)


def divergence_not_weighed_against_the_data(patch):
    """The divergence of a batch's share of the data."""
    original = modules.total_kl
    patch.setattr(
        sys.modules["geodax.vi.elbo"], "total_kl", lambda network, *, key=None: original(network, key=key) / 5
    )


def diagonals_exchanged(patch):
    original = hadamard.HadamardWeight.parts
    patch.setattr(hadamard.HadamardWeight, "parts", lambda self, key: original(self, key)[::-1])


def one_draw_for_all_rows(patch):
    patch.setattr(modules.Rows, "rows", lambda self, x: jax.vmap(modules.seeded(self.network, self.key))(x))


def deviations_added_instead_of_variances(patch):
    patch.setattr(mean_field, "_root", lambda variance: variance)


def moments_exchanged(patch):
    original = hadamard_moments.row_col_moments

    def exchanged(layer):
        found = original(layer)
        return found._replace(row=found.column, column=found.row)

    patch.setattr(gx.nn, "row_col_moments", exchanged)


# ------------------------------------------------------------------------------------------------- table


def target(sampler: str, metric: str, flow: str, name: str) -> Callable:
    return lambda key: test_known_targets.check_target(sampler, metric, flow, test_known_targets.TARGETS[name])


def flow_laws(metric: str, flow: str, shape: tuple) -> Callable:
    return lambda key: test_flows.check_flow(stiefel_case(metric, flow, shape), jnp.float64, key)


def order(metric: str, flow: str, dtype=jnp.float64) -> Callable:
    manifold = gx.Stiefel(metric=metric, flow=flow)
    return lambda key: test_integrators.check_order(manifold, quadratic((5, 3)), jnp.zeros((5, 3), dtype), key)


def beside_complex_leaves(name: str) -> Callable:
    return lambda key: test_integrators.check_order_beside_complex_leaves(name, key)


def of_case(check: Callable, name: str) -> Callable:
    return lambda key: check(named_case(name), key)


def symplectic(shape: tuple) -> Callable:
    return lambda key: test_integrators.check_symplectic(gx.Stiefel(), shape, False, key)


def never_entered(sampler: str) -> Callable:
    return lambda key: test_integrators.check_undefined_density_is_never_entered(sampler, key)


def leaving_is_rejected(sampler: str) -> Callable:
    manifold = gx.Stiefel(metric="embedded", flow=test_integrators.FailingFlow(1.01))
    return lambda key: test_integrators.check_failures_are_rejected(sampler, manifold, lambda x: 0 * jnp.sum(x), key)


def haar(shape: tuple) -> Callable:
    return lambda key: test_manifolds.check_haar(shape, key)


def momentum_law(metric: str) -> Callable:
    return lambda key: test_manifolds.check_momentum_law(metric, (5, 3), False, key)


def momentum_energy(metric: str) -> Callable:
    return lambda key: test_manifolds.check_momentum_energy(stiefel_case(metric, "cayley", (5, 3)), key)


def long_run(key) -> None:
    test_flows.check_long_run(stiefel_case("canonical", "cayley", (7, 3)), jnp.float64, key)


def parts(key) -> None:
    test_manifolds.check_parts_are_independent(key)


def transform_case(name: str):
    return next(case for case in test_transforms.CASES if case.name == name)


def uniform_law(name: str) -> Callable:
    return lambda key: test_transforms.check_uniform_law(transform_case(name))


def log_volume(name: str) -> Callable:
    return lambda key: test_transforms.check_log_volume(transform_case(name).transform, key)


def pulled_back(name: str) -> Callable:
    langevin = test_known_targets.TARGETS[LANGEVIN]
    return lambda key: test_transforms.check_nuts(test_transforms.NUTS_CASES[name], langevin, key)


def rotation_gradient(key) -> None:
    test_givens.check_rotation_gradient(6, 3)


def stochastic_frames(**settings) -> Callable:
    return lambda key: test_sghmc.check_frames(key, **settings)


def closed_divergence(name: str) -> Callable:
    return lambda key: test_families.check_closed_divergence(name)


def divergence_over_draws(name: str) -> Callable:
    return lambda key: test_families.check_divergence_over_draws(name, key)


def law_of_outputs(kind: type) -> Callable:
    return lambda key: test_variational_layers.check_law_of_outputs(kind, key)


def natural_steps(key) -> None:
    test_fit.check_natural_steps(test_fit.linear_model(), True, key)


def kl_warmup(key) -> None:
    test_fit.check_kl_warmup(test_fit.linear_model(), 4, [0.25, 0.5, 0.75, 1, 1], key)


def bound(key) -> None:
    test_fit.check_bound(test_fit.linear_model(), key)


LANGEVIN = "langevin-3x2"


def jacobian_left_out(patch):
    patch.setattr(
        constraints.StiefelTransform,
        "log_abs_det_jacobian",
        lambda self, x, y, intermediates=None: jnp.zeros(x.shape[:-1]),
    )


def redundant_part_left_as_it_is(patch):
    patch.setattr(reparam, "complete", lambda transform: lambda key, q: transform.inverse(q))


def relaxed(check) -> Callable:
    """A check of code of another library, which does not hold under strict promotion and key-reuse checking."""

    def run(key):
        with (
            jax.numpy_dtype_promotion("standard"),
            jax.numpy_rank_promotion("allow"),
            jax.debug_key_reuse(False),
        ):
            check(key)

    return run


ROWS = [
    Row(
        "dimension for the power of the speed: measure",
        dimension_for_power_of_the_speed,
        lambda key: test_isokinetic.check_a_step("euclidean", key),
    ),
    Row(
        "dimension for the power of the speed: moments",
        dimension_for_power_of_the_speed,
        lambda key: test_mclmc.check_adjusted_on_a_normal(2, key),
    ),
    Row(
        "isokinetic kick in the ambient metric",
        kick_in_the_ambient_metric,
        lambda key: test_isokinetic.check_a_step("canonical", key),
    ),
    Row(
        "isokinetic kick not projected",
        gradient_not_projected,
        lambda key: test_isokinetic.check_a_step("geodesic", key),
    ),
    Row("speed not fixed", speed_not_fixed, lambda key: test_mclmc.check_unadjusted("langevin-3x2", key)),
    Row("length slope upside down: slopes", length_slope_upside_down, test_joint_warmup.check_slopes),
    Row("length slope upside down: length", length_slope_upside_down, test_joint_warmup.check_length_on_a_normal),
    Row("length slope without its time: slopes", length_slope_without_its_time, test_joint_warmup.check_slopes),
    Row("times spread too far", times_spread_too_far, lambda key: test_joint_warmup.check_relative_times()),
    Row("length without its cost", length_without_its_cost, test_joint_warmup.check_length_on_a_normal),
    Row("energy of the other end", energy_of_the_other_end, test_kernels.check_metropolis),
    Row(
        "energy before the reflection",
        energy_before_the_reflection,
        test_kernels.check_reflection_keeps_the_kinetic_energy,
    ),
    Row("center of the chains forgotten", center_of_the_chains_forgotten, test_joint_warmup.check_length_on_a_normal),
    Row("anchor that moves", anchor_that_moves, test_warmup.check_moments_of_a_window),
    Row(
        "first copy always reflected",
        first_copy_always_reflected,
        lambda key: test_manifolds.check_reflection((3, 2, 2), key),
    ),
    Row("prior upside down in natural steps", prior_variance_upside_down_in_natural_steps, natural_steps),
    Row("memories of natural steps exchanged", memories_of_natural_steps_exchanged, natural_steps),
    Row("scales of one chain", scales_of_one_chain, test_warmup.check_moments_of_a_window),
    Row(
        "correlations of draws alone",
        correlations_of_draws_alone,
        lambda key: test_mass_matrix.check_estimate_of_a_normal_distribution(30),
    ),
    Row(
        "correlations left out of a kick",
        correlations_only_in_the_flow,
        lambda key: test_mass_matrix.check_leapfrog_with_correlations(),
    ),
    Row("full first kick: order", full_first_kick, order("canonical", "cayley")),
    Row("full first kick: target", full_first_kick, target("hmc", "canonical", "cayley", LANGEVIN)),
    Row("gradient not conjugated: frames", gradient_not_conjugated, order("canonical", "cayley", jnp.complex128)),
    Row("gradient not conjugated: arrays", gradient_not_conjugated, beside_complex_leaves("euclidean-complex")),
    Row(
        "complex entries counted once",
        complex_entries_counted_once,
        of_case(test_manifolds.check_dim, "euclidean-complex"),
    ),
    Row(
        "both parts in one scale",
        both_parts_in_one_scale,
        of_case(test_manifolds.check_squares_of_a_momentum, "product-complex"),
    ),
    Row(
        "freedom of real frames",
        freedom_of_real_frames,
        of_case(test_manifolds.check_squares_of_a_momentum, "product-complex"),
    ),
    Row("scales of pairs as of columns", scales_of_pairs_as_of_columns, test_frame_scales.check_scaled_parts),
    Row(
        "momentum of the other scales",
        momentum_of_the_other_scales,
        lambda key: test_frame_scales.check_distribution("hmc", "cayley", (5, 2), key),
    ),
    Row("loosest bound of a product", loosest_bound_of_a_product, lambda key: test_manifolds.check_strictest_part("b")),
    Row("QR without signs: moments", qr_without_signs, haar((3, 2))),
    Row("QR without signs: determinant", qr_without_signs, haar((3, 3))),
    Row("gradient not projected: order", gradient_not_projected, order("embedded", "cayley")),
    Row("energy of the other metric: order", energy_of_the_other_metric, order("canonical", "cayley")),
    Row("energy of the other metric: law", energy_of_the_other_metric, momentum_energy("canonical")),
    Row(
        "energy of the other metric: flow",
        energy_of_the_other_metric,
        target("hmc", "canonical", "cayley", "both-5x2"),
    ),
    Row("skew part's variance doubled: law", skew_variance_doubled, momentum_law("canonical")),
    Row("skew part's variance doubled: energy", skew_variance_doubled, momentum_energy("canonical")),
    Row("skew part's variance doubled: hmc", skew_variance_doubled, target("hmc", "canonical", "cayley", LANGEVIN)),
    Row("skew part's variance doubled: nuts", skew_variance_doubled, target("nuts", "canonical", "cayley", LANGEVIN)),
    Row("momentum off the tangent space", momentum_drawn_off_the_tangent_space, momentum_law("embedded")),
    Row("velocity of the other metric", velocity_for_momentum, flow_laws("canonical", "cayley", (5, 3))),
    Row("Cayley with the wrong sign: dense", cayley_with_the_wrong_sign, flow_laws("canonical", "cayley", (5, 3))),
    Row("Cayley with the wrong sign: low rank", cayley_with_the_wrong_sign, flow_laws("canonical", "cayley", (10, 3))),
    Row("Cayley with the wrong sign: order", cayley_with_the_wrong_sign, order("canonical", "cayley")),
    Row("momentum projected: form", momentum_projected_instead_of_rotated, symplectic((3, 2))),
    Row("momentum projected: laws", momentum_projected_instead_of_rotated, flow_laws("canonical", "cayley", (5, 3))),
    Row(
        "momentum projected: target",
        momentum_projected_instead_of_rotated,
        target("hmc", "canonical", "cayley", LANGEVIN),
    ),
    Row("Gram blocks by hand", gram_blocks_replaced_by_identities, long_run),
    Row("undefined energy counts as none: hmc", undefined_energy_counts_as_none, never_entered("hmc")),
    Row("undefined energy counts as none: nuts", undefined_energy_counts_as_none, never_entered("nuts")),
    Row("no look at the manifold: hmc", no_look_at_the_manifold, leaving_is_rejected("hmc")),
    Row("no look at the manifold: nuts", no_look_at_the_manifold, leaving_is_rejected("nuts")),
    Row("acceptance ratio upside down", wrong_sign_of_the_energy_error, target("hmc", "canonical", "cayley", LANGEVIN)),
    Row("every trajectory accepted", every_trajectory_accepted, target("hmc", "canonical", "cayley", LANGEVIN)),
    Row(
        "multinomial weight upside down",
        wrong_sign_of_the_energy_error,
        target("nuts", "canonical", "cayley", LANGEVIN),
    ),
    Row("newest point always taken", newest_point_always_taken, target("nuts", "canonical", "cayley", LANGEVIN)),
    Row("trees grow forwards only", trees_grow_forwards_only, target("nuts", "canonical", "cayley", LANGEVIN)),
    Row(
        "turning judged by the first point only",
        turning_within_looks_at_the_first_point_only,
        target("nuts", "canonical", "cayley", "langevin-3x2"),
    ),
    Row(
        "turning of the whole judged by one end",
        turning_looks_at_one_end_of_the_whole_tree,
        target("nuts", "canonical", "cayley", "bingham-3x2"),
    ),
    Row("no turning within a half", no_turning_within, target("nuts", "canonical", "cayley", "bingham-3x2")),
    Row("every reflection accepted", every_reflection_accepted, target("hmc", "canonical", "cayley", "orthogonal-2")),
    Row("no reflection", no_reflection, target("hmc", "canonical", "cayley", "orthogonal-2")),
    Row("one key for all leaves", one_key_for_all_leaves, parts),
    Row("one key for everything", one_key_for_everything, target("hmc", "canonical", "cayley", LANGEVIN)),
    Row("log volume left out: Givens", log_volume_left_out, pulled_back("givens")),
    Row("log volume left out: Cayley", log_volume_left_out, pulled_back("cayley")),
    Row("volume of rotations upside down: Gram", volume_of_rotations_with_the_wrong_sign, log_volume("givens-5x3")),
    Row("volume of rotations upside down: law", volume_of_rotations_with_the_wrong_sign, uniform_law("givens-3x2")),
    Row("slope of the logistic left out: Gram", slope_of_the_logistic_left_out, log_volume("givens-5x3")),
    Row("slope of the logistic left out: law", slope_of_the_logistic_left_out, uniform_law("givens-3x2")),
    Row("sines counted as constants", sines_counted_as_constants, rotation_gradient),
    Row("law of X left out", law_of_the_redundant_part_left_out, uniform_law("polar-5x3")),
    Row("mirrors are the vectors themselves", mirrors_are_the_vectors_themselves, uniform_law("householder-5x3")),
    Row("Cayley exponent off by one: Gram", cayley_exponent_off_by_one, log_volume("cayley-5x3")),
    Row("Cayley exponent off by one: law", cayley_exponent_off_by_one, uniform_law("cayley-3x3")),
    Row(
        "Jacobian left out of a NumPyro site",
        jacobian_left_out,
        relaxed(test_numpyro_sites.check_coordinates_carry_the_law),
    ),
    Row(
        "redundant part of a NumPyro site not drawn",
        redundant_part_left_as_it_is,
        relaxed(lambda key: test_numpyro_sites.check_auxiliary_vector(key, "polar")),
    ),
    Row("N / B missing", batch_not_scaled_to_the_data, test_stochastic_laws.check_conjugate_mean),
    Row("divergence of the wrong sign", divergence_of_the_wrong_sign, test_stochastic_laws.check_monge),
    Row("lag left out of the window", lag_left_out_of_the_window, test_metric_formulas.check_window_of_rmsprop),
    Row("Wenzel's averages begun at zero", averages_begun_at_zero, test_metric_formulas.check_wenzel),
    Row("Wenzel's epsilon after the root", epsilon_after_the_root, test_metric_formulas.check_wenzel),
    Row("one block too many", one_block_too_many, test_metric_formulas.check_blocks),
    *(
        Row(
            f"unknown statistics taken for small ones: {name}",
            unknown_statistics_taken_for_small_ones,
            lambda key, name=name: test_vanishing_gradients.check_mass(key, name),
        )
        for name in ("rmsprop", "shampoo", "soap")
    ),
    Row("metric of the sum", metric_of_the_sum, lambda key: test_scalings.check_mean(key, gx.sghmc)),
    Row("clipped by the sum", clipped_by_the_sum, test_scalings.check_clipping),
    Row("nothing deducted", deduction_times(0.0), lambda key: test_scalings.check_deduction(key, "baoab")),
    Row(
        "deduction of the other order",
        deduction_times(1 / (1 - 0.4 / 2) ** 2),
        lambda key: test_scalings.check_deduction(key, "baoab"),
    ),
    Row("gradient not conjugated: plane", batch_gradient_not_conjugated, test_scalings.check_complex_normal),
    Row("gradient not conjugated: direction", batch_gradient_not_conjugated, test_scalings.check_complex_direction),
    Row("force not conjugated", force_not_conjugated, test_scalings.check_step_of_complex_leaves),
    Row("noise isotropic", noise_isotropic, stochastic_frames()),
    Row("noise of the other order", noise_of_the_other_order, stochastic_frames(friction=0.5, num_steps=1500)),
    Row("kick of the other scheme", kick_of_the_other_scheme, stochastic_frames()),
    Row(
        "momentum only projected", momentum_only_projected, lambda key: test_flows.check_polar_order((5, 3), False, key)
    ),
    Row("kick not projected", kick_not_projected, test_stochastic_laws.check_sphere),
    Row("one beta for all parts", one_beta_for_all_parts, lambda key: test_sghmc.check_noise(key)),
    Row("determinant of the other sign: full", determinant_of_the_other_sign, closed_divergence("full")),
    Row("determinant of the other sign: low rank", determinant_of_the_other_sign, divergence_over_draws("low-rank")),
    Row("entropy left out: family", divergence_of_the_prior_only, closed_divergence("diagonal")),
    Row(
        "entropy left out: network", divergence_of_the_prior_only, test_variational_layers.check_divergence_of_a_network
    ),
    *(
        Row(
            f"prior variance taken for a deviation: {name}",
            prior_variance_taken_for_a_deviation,
            closed_divergence(name),
        )
        for name in ("diagonal", "full", "low-rank")
    ),
    Row("volume of flows left out", volume_of_flows_left_out, test_families.check_density_of_flows),
    Row("volume of flows upside down", volume_of_a_flow_upside_down, test_families.check_density_of_flows),
    Row("volume of a flow upside down", volume_of_a_flow_upside_down, test_families.check_planar_flow),
    Row("flow that may fold", flow_that_may_fold, test_families.check_planar_flow),
    Row(
        "divergence of the first layer only",
        divergence_of_the_first_layer_only,
        test_variational_layers.check_divergence_of_a_network,
    ),
    Row(
        "biases left out of the divergence",
        biases_left_out_of_the_divergence,
        test_variational_layers.check_divergence_of_a_network,
    ),
    Row(
        "scales left out of the divergence",
        scales_left_out_of_the_divergence,
        test_hadamard_layers.check_scales_and_flows,
    ),
    Row(
        "dropped weights' divergence",
        dropout_divergence_of_dropped_weights,
        test_variational_layers.check_dropout_divergence,
    ),
    Row("dropout not scaled", dropout_not_scaled, law_of_outputs(gx.nn.DropoutLinear)),
    Row("divergence warmed up one step late", divergence_warmed_up_one_step_late, kl_warmup),
    Row("divergence not weighed against the data", divergence_not_weighed_against_the_data, bound),
    Row(
        "S_1 and S_2 exchanged",
        diagonals_exchanged,
        lambda key: test_hadamard_layers.check_dense_matrix(3, 10, None, key),
    ),
    Row("one draw for all rows", one_draw_for_all_rows, test_hadamard_layers.check_draws_of_rows),
    Row(
        "deviations added instead of variances",
        deviations_added_instead_of_variances,
        law_of_outputs(gx.nn.MeanFieldLinear),
    ),
    Row("moments exchanged", moments_exchanged, lambda key: test_hadamard_layers.check_moments("full")),
]
