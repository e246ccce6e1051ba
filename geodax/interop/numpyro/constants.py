"""Normalising constants that densities leave out, and checks that this is correct.

Leaving out a constant is correct only while it is constant. If it depends on latent variables, their posterior is
wrong. It depends on the rotation-invariant parameters: the singular values of ``f``, the eigenvalues of ``a``, the
weights ``b``; a mode can be latent.
"""

import contextlib
import contextvars
import functools
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from geodax._types import Array

_REMEDY = (
    "Fix the singular values of f (the eigenvalues of a and the weights b), which leaves its mode free; or use a "
    "MatrixLangevin with one or two columns or a MatrixBingham with one, whose constants are known; or, if you know "
    "the constant, write the log density as numpyro.factor(name, ...), for a latent matrix with a StiefelUniform."
)
_is_checked = contextvars.ContextVar("_is_checked", default=False)


class LeftOut(NamedTuple):
    """Dependencies of a normalising constant that ``log_prob`` leaves out.

    Attributes:
        name: The distribution.
        fixed: Values that must not depend on latent variables.
        components: Values that must be the same for the components of a mixture, along the first axis.
    """

    name: str
    fixed: tuple[Array, ...]
    components: tuple[Array, ...] = ()


def left_out(distribution: Any) -> LeftOut | None:
    """Return the dependencies of the left-out constant of a NumPyro distribution; None if nothing is left out."""
    if hasattr(distribution, "invariants"):
        name = f"{type(distribution).__name__} of {' x '.join(map(str, distribution.event_shape))} matrices"
        return None if distribution.is_normalized else LeftOut(name, distribution.invariants())
    if hasattr(distribution, "component_distribution"):
        found = left_out(distribution.component_distribution)
        if found is None:
            return None
        axis = len(distribution.component_distribution.batch_shape) - 1
        return found._replace(components=tuple(jnp.moveaxis(x, axis, 0) for x in found.fixed))
    if hasattr(distribution, "component_distributions"):
        return _of_components([left_out(part) for part in distribution.component_distributions])
    return left_out(distribution.base_dist) if hasattr(distribution, "base_dist") else None


def _of_components(parts: list[LeftOut | None]) -> LeftOut | None:
    found = [part for part in parts if part is not None]
    if not found:
        return None
    kinds = {(part.name, tuple(x.shape for x in part.fixed)) if part else None for part in parts}
    if len(kinds) > 1:
        raise ValueError(
            f"A mixture has a component {found[0].name}, whose constant is not known, together with other "
            "kinds of components; their weights would be wrong. Use components with known constants, such as "
            "MatrixLangevin with one or two columns or MatrixBingham with one."
        )
    stacked = tuple(jnp.stack(x) for x in zip(*(part.fixed for part in found), strict=True))
    return LeftOut(found[0].name, stacked, stacked)


def require_constant(names: Mapping[str, str], places: list[Mapping[str, Any]]) -> None:
    """Raise ValueError for sites whose left-out constants differ between places, or between components of a mixture.

    A place has by site ``(fixed, components)`` of :class:`LeftOut`, at some values of the latent variables.
    """
    for site, name in names.items():
        (fixed, components), *others = (place[site] for place in places)
        if any(not _agree(x[:1], x) for x in components):
            raise ValueError(
                f"to_geodax: the site {site!r} is a mixture of components {name}, whose constants are not known and "
                f"not the same, so that their weights would be wrong. {_REMEDY}"
            )
        if any(not _agree(x, y) for other, _ in others for x, y in zip(fixed, other, strict=True)):
            raise ValueError(
                f"to_geodax: the site {site!r} has the distribution {name}, whose density leaves out a constant that "
                "is not known; it depends on latent variables, so their posterior would be wrong. " + _REMEDY
            )


def _agree(x: Any, y: Any) -> bool:
    x, y = np.asarray(x), np.asarray(y)
    tolerance = float(np.finfo(x.dtype).eps) ** 0.5
    return np.allclose(x, y, rtol=tolerance, atol=tolerance * np.max(np.abs(y), initial=0.0), equal_nan=True)


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Context without warnings about differentiated parameters, since the constants were compared before."""
    token = _is_checked.set(True)
    try:
        yield
    finally:
        _is_checked.reset(token)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def noticed(name: str, parameter: Array) -> Array:
    """A parameter of a density without its constant; warns if the density is differentiated with respect to it."""
    del name
    return parameter


@noticed.defjvp
def _noticed_jvp(name: str, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    if not _is_checked.get():
        warnings.warn(
            f"{name}: log_prob leaves out a constant that is not known, and one of its parameters depends on what is "
            f"inferred or fitted. That is correct only if the constant does not change. {_REMEDY}",
            stacklevel=2,
        )
    return primals[0], tangents[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def without_derivative(name: str, draws: Array, parameters: tuple[Array, ...]) -> Array:
    """Draws by rejection; raises if they are differentiated with respect to the parameters."""
    del name, parameters
    return draws


def _without_derivative_forward(name: str, draws: Array, parameters: tuple[Array, ...]) -> tuple[Array, None]:
    del name, parameters
    return draws, None


def _without_derivative_backward(name: str, residuals: None, cotangent: Array) -> Any:
    raise TypeError(
        f"{name}: its draws, made by rejection, have no derivative in the parameters, which a guide under Trace_ELBO "
        "needs. Use numpyro.infer.TraceGraph_ELBO(num_particles=...), whose gradients need only log_prob, or a "
        "guide in coordinates (such as AutoNormal)."
    )


without_derivative.defvjp(_without_derivative_forward, _without_derivative_backward)
