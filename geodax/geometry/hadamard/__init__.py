r"""The fast Walsh-Hadamard transform, with all backends behind one function.

:func:`fwht` multiplies by the orthonormal Hadamard matrix H of Sylvester's order, or by its Kronecker product with a
symmetric Hadamard matrix of order 12, 20 or 28, in O(D log D). H is symmetric and its own inverse, which defines the
derivatives of the transform: ``H b`` is the solution of ``H x = b``.
"""

from geodax.geometry.hadamard.matrices import hadamard_matrix
from geodax.geometry.hadamard.native import is_native
from geodax.geometry.hadamard.transform import BACKENDS, fwht, hadamard_size

__all__ = ["BACKENDS", "fwht", "hadamard_matrix", "hadamard_size", "is_native"]
