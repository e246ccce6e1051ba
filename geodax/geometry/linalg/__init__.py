"""Small dense linear algebra for the manifolds.

All functions act on the last two axes; leading axes are independent copies. For complex arrays "transpose" is the
conjugate transpose and "skew" is skew-Hermitian.
"""

from geodax.geometry.linalg.functions import (
    cayley_skew,
    expm_skew,
    inverse_root,
    inverse_sqrt_correction,
    newton_schulz,
    polar_factor,
    qr_positive,
)
from geodax.geometry.linalg.parts import adjoint, eye_like, skew, sym
from geodax.geometry.linalg.pieces import in_pieces
from geodax.geometry.linalg.systems import cholesky, solve_accretive, solve_accretive_and_log_det, solve_lower

__all__ = [
    "adjoint",
    "cayley_skew",
    "cholesky",
    "expm_skew",
    "eye_like",
    "in_pieces",
    "inverse_root",
    "inverse_sqrt_correction",
    "newton_schulz",
    "polar_factor",
    "qr_positive",
    "skew",
    "solve_accretive",
    "solve_accretive_and_log_det",
    "solve_lower",
    "sym",
]
