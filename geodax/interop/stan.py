r"""The transforms as Stan functions.

:func:`stan_functions` returns a block for a Stan program. For each parametrisation there is a function whose name ends
in ``_lp``: it takes unconstrained parameters, adds the log volume to the target, and returns the orthonormal matrix.
Densities of the matrix are then with respect to the uniform (Haar) probability measure, as everywhere in geodax, and
the values equal those of :mod:`geodax.geometry.transforms` with the same unconstrained vector::

    parameters {
      vector[givens_size(n, p)] z;
    }
    transformed parameters {
      matrix[n, p] W = givens_lp(z, n, p);
    }
    model {
      target += sum(F .* W);   // matrix Langevin
    }

Priors on Givens angles, or custom ranges, are written with ``givens_matrix`` and ``givens_log_volume`` over a
bounded vector of angles: ``vector<lower=givens_lower(n, p), upper=givens_upper(n, p)>[givens_size(n, p)] theta``.
"""

from collections.abc import Sequence
from pathlib import Path

_GIVENS = """
  // Number of Givens angles of an n x p matrix with orthonormal columns. They are ordered 12, ..., 1n, 23, ..., pn.
  int givens_size(int n, int p) {
    return n * p - (p * (p + 1)) %/% 2;
  }

  // Largest angles: pi for the longitudes 12, 23, ..., and pi / 2 for the latitudes, all others.
  vector givens_upper(int n, int p) {
    vector[givens_size(n, p)] bound = rep_vector(pi() / 2, givens_size(n, p));
    int k = 1;
    for (i in 1:min(p, n - 1)) {
      bound[k] = pi();
      k += n - i;
    }
    return bound;
  }

  vector givens_lower(int n, int p) {
    return -givens_upper(n, p);
  }

  // The product of rotations (R_12 ... R_1n)(R_23 ... R_2n) ... (R_p,p+1 ... R_pn) I, counterclockwise.
  matrix givens_matrix_of(vector cosines, vector sines, int n, int p) {
    matrix[n, p] q = rep_matrix(0, n, p);
    int k = givens_size(n, p);
    for (i in 1:p) {
      q[i, i] = 1;
    }
    for (i_from_last in 1:p) {
      int i = p + 1 - i_from_last;
      row_vector[p - i + 1] held = q[i, i:p];
      for (j_from_last in 1:(n - i)) {
        int j = n + 1 - j_from_last;
        row_vector[p - i + 1] passed = q[j, i:p];
        q[j, i:p] = sines[k] * held + cosines[k] * passed;
        held = cosines[k] * held - sines[k] * passed;
        k -= 1;
      }
      q[i, i:p] = held;
    }
    return q;
  }

  matrix givens_matrix(vector theta, int n, int p) {
    return givens_matrix_of(cos(theta), sin(theta), n, p);
  }

  // Log density of zero angles under the uniform distribution.
  real givens_log_constant(int n, int p) {
    real constant = -min(p, n - 1) * log(2 * pi());
    for (i in 1:p) {
      for (j in (i + 2):n) {
        constant -= lgamma(0.5) + lgamma(0.5 * (j - i)) - lgamma(0.5 * (j - i + 1));
      }
    }
    return n == p ? constant - log2() : constant;
  }

  // Log density of the angles under the uniform distribution of the matrix.
  real givens_log_volume_of(vector log_cosines, int n, int p) {
    real volume = givens_log_constant(n, p);
    int k = 1;
    for (i in 1:p) {
      for (j in (i + 1):n) {
        if (j > i + 1) {
          volume += (j - i - 1) * log_cosines[k];
        }
        k += 1;
      }
    }
    return volume;
  }

  real givens_log_volume(vector theta, int n, int p) {
    return givens_log_volume_of(log(abs(cos(theta))), n, p);
  }

  // Givens rotations from unconstrained numbers; adds the log volume to the target.
  matrix givens_lp(vector z, int n, int p) {
    int size = givens_size(n, p);
    vector[size] width = givens_upper(n, p);
    vector[size] cosines;
    vector[size] sines;
    vector[size] log_cosines;
    for (k in 1:size) {
      // the angle from the end of the range, in which small cosines keep their digits
      real rest = 2 * width[k] * inv_logit(-abs(z[k]));
      if (width[k] > 2) {
        real theta = width[k] - rest;
        cosines[k] = cos(theta);
        sines[k] = (z[k] < 0 ? -1 : 1) * sin(theta);
        log_cosines[k] = 0;
      } else {
        cosines[k] = sin(rest);
        sines[k] = (z[k] < 0 ? -1 : 1) * cos(rest);
        log_cosines[k] = log(cosines[k]);
      }
    }
    target += sum(log(2 * width)) + sum(log_inv_logit(z)) + sum(log_inv_logit(-z));
    target += givens_log_volume_of(log_cosines, n, p);
    return givens_matrix_of(cosines, sines, n, p);
  }
"""

_POLAR = """
  // Polar factor of a matrix of standard normal entries; adds their log density to the target.
  matrix polar_lp(matrix z) {
    int p = cols(z);
    matrix[p, p] vectors = eigenvectors_sym(crossprod(z));
    vector[p] values = eigenvalues_sym(crossprod(z));
    target += std_normal_lpdf(to_vector(z));
    return z * (diag_post_multiply(vectors, inv_sqrt(values)) * vectors');
  }
"""

_HOUSEHOLDER = """
  // Number of entries of the vectors x_1, ..., x_p, of lengths n, n - 1, ...
  int householder_size(int n, int p) {
    return n * p - (p * (p - 1)) %/% 2;
  }

  // Product of reflections by vectors of standard normal entries; adds their log density to the target.
  matrix householder_lp(vector z, int n, int p) {
    matrix[n, p] q = rep_matrix(0, n, p);
    int first = householder_size(n, p) + 1;
    for (i in 1:p) {
      q[i, i] = 1;
    }
    for (i_from_last in 1:p) {
      int i = p + 1 - i_from_last;
      int length = n - i + 1;
      vector[length] u;
      first -= length;
      u = segment(z, first, length);
      u[1] += sqrt(dot_self(u));
      q[i:n, i:p] = (2 / dot_self(u)) * u * (u' * q[i:n, i:p]) - q[i:n, i:p];
    }
    target += std_normal_lpdf(z);
    return q;
  }
"""

_CAYLEY = """
  int cayley_size(int n, int p) {
    return n * p - (p * (p + 1)) %/% 2;
  }

  // Cayley transform: entries of A below the diagonal, then those of B, row by row; adds the log volume to the target.
  // The chart is centred at the first columns of the identity: for another centre multiply by an orthogonal matrix that
  // has its columns first.
  matrix cayley_lp(vector z, int n, int p) {
    matrix[p, p] m = identity_matrix(p);
    matrix[n - p, p] b;
    matrix[p, p] m_inverse;
    matrix[n, p] q;
    int k = 1;
    real constant = cayley_size(n, p) * log2();
    for (i in 2:p) {
      for (j in 1:(i - 1)) {
        m[i, j] -= z[k];
        m[j, i] += z[k];
        k += 1;
      }
    }
    for (i in 1:(n - p)) {
      for (j in 1:p) {
        b[i, j] = z[k];
        k += 1;
      }
    }
    m += crossprod(b);
    m_inverse = inverse(m);
    q[1:p, 1:p] = 2 * m_inverse - identity_matrix(p);
    if (n > p) {
      q[(p + 1):n, 1:p] = 2 * b * m_inverse;
    }
    for (i in (n - p + 1):n) {
      constant -= log2() + 0.5 * i * log(pi()) - lgamma(0.5 * i);
    }
    target += constant - (n - 1) * log_determinant(m);
    return q;
  }
"""

_TEXTS = {"givens": _GIVENS, "polar": _POLAR, "householder": _HOUSEHOLDER, "cayley": _CAYLEY}


def stan_functions(names: Sequence[str] = ("givens", "polar", "householder", "cayley")) -> str:
    """Return the functions block of a Stan program with the transforms.

    Args:
        names: A selection of ``"givens"``, ``"polar"``, ``"householder"`` and ``"cayley"``.

    Returns:
        Stan code, a complete ``functions { ... }`` block, for Stan 2.33 and later.

    Raises:
        ValueError: For an unknown name, or none.
    """
    unknown = [name for name in names if name not in _TEXTS]
    if unknown or not names or isinstance(names, str):
        raise ValueError(f"stan_functions: expected names from {list(_TEXTS)}, found {names!r}.")
    return "functions {" + "".join(_TEXTS[name] for name in _TEXTS if name in names) + "}\n"


def write_stan_functions(path: str | Path, names: Sequence[str] = ("givens", "polar", "householder", "cayley")) -> Path:
    """Write :func:`stan_functions` to a file.

    A Stan program includes them by ``#include orthonormal.stanfunctions`` inside its functions block; the file contains
    the functions without the enclosing block.

    Args:
        path: The file.
        names: See :func:`stan_functions`.

    Returns:
        The path.
    """
    text = stan_functions(names)
    path = Path(path)
    path.write_text(text.removeprefix("functions {\n").removesuffix("}\n"), encoding="utf-8")
    return path
