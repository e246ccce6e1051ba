"""Small dense linear algebra for the manifolds.

All functions act on the last two axes; leading axes are independent copies. For complex arrays "transpose" is the
conjugate transpose and "skew" is skew-Hermitian.
"""

from geodax.geometry.linalg.functions import (
    cayley_skew,
    expm_skew,
    inverse_root,
    newton_schulz,
    polar_factor,
    qr_positive,
    sqrt_corrections,
)
from geodax.geometry.linalg.parts import adjoint, eye_like, longest_row, skew, sym
from geodax.geometry.linalg.pieces import in_pieces, unless
from geodax.geometry.linalg.systems import cholesky, solve_accretive, solve_accretive_and_log_det, solve_lower

__all__ = [
    "adjoint",
    "cayley_skew",
    "cholesky",
    "expm_skew",
    "eye_like",
    "in_pieces",
    "inverse_root",
    "longest_row",
    "newton_schulz",
    "polar_factor",
    "qr_positive",
    "skew",
    "solve_accretive",
    "solve_accretive_and_log_det",
    "solve_lower",
    "sqrt_corrections",
    "sym",
    "unless",
]
