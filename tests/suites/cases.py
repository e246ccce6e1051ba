"""The manifolds that the suites run over, each with the shape of a position, and small targets on them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.geometry.manifolds import AbstractManifold

METRICS = ("canonical", "embedded", "literal")
FLOWS = ("cayley", "geodesic")


class Complex(tuple):
    """The shape of a complex leaf."""


class Case(NamedTuple):
    """A manifold and the shapes of a position's leaves."""

    name: str
    manifold: AbstractManifold
    shapes: object
    is_exact: bool = True

    def like(self, dtype) -> object:
        """Zeros shaped like a position, for real numbers of the given dtype."""
        of_complex = np.result_type(dtype, np.complex64)
        return jax.tree.map(
            lambda s: jnp.zeros(s, of_complex if isinstance(s, Complex) else dtype), self.shapes, is_leaf=_is_shape
        )


def _is_shape(node) -> bool:
    return isinstance(node, tuple) and all(isinstance(entry, int) for entry in node)


def stiefel_case(metric: str, flow: str, shape: tuple, is_complex: bool = False) -> Case:
    name = f"{'unitary' if is_complex else 'stiefel'}-{metric}-{flow}-{'x'.join(map(str, shape))}"
    return Case(name, gx.Stiefel(metric=metric, flow=flow), Complex(shape) if is_complex else shape, flow == "geodesic")


_NESTED = gx.Product(
    {
        "left": gx.Product({"frame": gx.Stiefel(), "rest": None}),
        "right": [gx.Sphere(), gx.Stiefel(metric="embedded", flow="geodesic")],
    }
)
_NESTED_SHAPES = {"left": {"frame": (5, 2), "rest": (3,)}, "right": [(2, 4), (3, 3)], "free": (2,)}

# of each kind a real and a complex leaf
_MIXED = gx.Product({"frame": gx.Stiefel(), "unitary": gx.Stiefel(metric="embedded")})
_MIXED_SHAPES = {"frame": (4, 2), "unitary": Complex((3, 2)), "free": (2,), "phase": Complex((3,))}

REAL_SHAPES = ((3, 1), (3, 2), (5, 3), (10, 3), (4, 4), (2, 2), (2, 7, 3))
COMPLEX_SHAPES = ((3, 2), (2, 2), (7, 3))
CASES = (
    Case("euclidean", gx.Euclidean(), (4,)),
    Case("euclidean-complex", gx.Euclidean(), Complex((4,))),
    Case("sphere", gx.Sphere(), (3,)),
    Case("sphere-batch", gx.Sphere(), (2, 3, 5)),
    Case("product", _NESTED, _NESTED_SHAPES, is_exact=False),
    Case("product-complex", _MIXED, _MIXED_SHAPES, is_exact=False),
    *(stiefel_case(m, f, s) for m in METRICS for f in FLOWS for s in REAL_SHAPES),
    *(stiefel_case(m, f, s, True) for m in METRICS for f in FLOWS for s in COMPLEX_SHAPES),
)


def named_case(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


# Every way of solving (p = 1, dense, square, low rank with copies) once; the other shapes are slow tests.
FAST_SHAPES = ((3, 1), (5, 3), (4, 4), (2, 7, 3))


def marked(cases) -> list:
    """The cases as parameters, marked slow where the shape adds little."""

    def is_slow(case: Case) -> bool:
        if not isinstance(case.manifold, gx.Stiefel):
            return False
        return case.shapes != (3, 2) if isinstance(case.shapes, Complex) else case.shapes not in FAST_SHAPES

    return [pytest.param(c, id=c.name, marks=[pytest.mark.slow] if is_slow(c) else []) for c in cases]


def quadratic(shape: tuple, strength: float = 1.0):
    """A smooth log density on n x p matrices with no symmetry: linear plus quadratic terms, both complex where x is."""
    n, p = shape[-2:]
    rng = np.random.default_rng(7)
    linear, square, linear_imag, square_imag = (rng.normal(size=s) for s in ((n, p), (n, n)) * 2)
    hermitian = (square + square.T + 1j * (square_imag - square_imag.T)) / np.sqrt(8.0 * n)
    weights = np.arange(1.0, p + 1.0) / p

    def logdensity(x):
        real = x.real.dtype
        f, s, d = (
            jnp.asarray(a if jnp.iscomplexobj(x) else a.real, x.dtype)
            for a in (linear + 1j * linear_imag, hermitian, weights)
        )
        quadratic_part = jnp.conj(x) * (s @ x) * d.reshape((1,) * (x.ndim - 1) + (-1,))
        linear_part = jnp.conj(f).reshape((1,) * (x.ndim - 2) + f.shape) * x
        return jnp.asarray(strength, real) * jnp.sum((quadratic_part + linear_part).real)

    return logdensity
