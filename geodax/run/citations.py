"""What to cite for a method: BibTeX entries by the name of the method."""

_ENTRIES = {
    "oHMC": """@inproceedings{yanush2019hamiltonian,
  title = {Hamiltonian Monte-Carlo for Orthogonal Matrices},
  author = {Yanush, Viktor and Kropotov, Dmitry},
  year = {2019},
  note = {arXiv:1901.08045}
}""",
    "geodesic": """@article{byrne2013geodesic,
  title = {Geodesic Monte Carlo on Embedded Manifolds},
  author = {Byrne, Simon and Girolami, Mark},
  journal = {Scandinavian Journal of Statistics},
  volume = {40}, number = {4}, pages = {825--845}, year = {2013}
}""",
    "NUTS": """@article{hoffman2014no,
  title = {The No-{U}-Turn Sampler: Adaptively Setting Path Lengths in {H}amiltonian {M}onte {C}arlo},
  author = {Hoffman, Matthew D. and Gelman, Andrew},
  journal = {Journal of Machine Learning Research},
  volume = {15}, pages = {1593--1623}, year = {2014}
}

@article{betancourt2017conceptual,
  title = {A Conceptual Introduction to {H}amiltonian {M}onte {C}arlo},
  author = {Betancourt, Michael},
  year = {2017},
  note = {arXiv:1701.02434}
}""",
    "PPCA": """@article{tipping1999probabilistic,
  title = {Probabilistic Principal Component Analysis},
  author = {Tipping, Michael E. and Bishop, Christopher M.},
  journal = {Journal of the Royal Statistical Society: Series B},
  volume = {61}, number = {3}, pages = {611--622}, year = {1999}
}""",
    "Givens": """@article{pourzanjani2021bayesian,
  title = {Bayesian Inference over the {S}tiefel Manifold via the {G}ivens Representation},
  author = {Pourzanjani, Arya A. and Jiang, Richard M. and Mitchell, Brian and Atzberger, Paul J. and
            Petzold, Linda R.},
  journal = {Bayesian Analysis},
  volume = {16}, number = {2}, pages = {639--666}, year = {2021}
}""",
    "R-hat": """@article{vehtari2021rank,
  title = {Rank-Normalization, Folding, and Localization: An Improved $\\widehat{R}$ for Assessing
           Convergence of {MCMC}},
  author = {Vehtari, Aki and Gelman, Andrew and Simpson, Daniel and Carpenter, Bob and B{\\"u}rkner, Paul-Christian},
  journal = {Bayesian Analysis},
  volume = {16}, number = {2}, pages = {667--718}, year = {2021}
}""",
}

# What each thing a user can ask for rests on.
_METHODS = {
    "hmc": ("oHMC", "geodesic"),
    "ohmc": ("oHMC",),
    "geodesic": ("geodesic",),
    "nuts": ("NUTS", "oHMC"),
    "pca": ("PPCA", "Givens", "oHMC", "NUTS"),
    "cca": ("Givens", "NUTS"),
    "unit-network": ("Givens", "NUTS"),
    "diagnostics": ("R-hat",),
}


def methods() -> tuple[str, ...]:
    """Names that :func:`citation` knows."""
    return tuple(_METHODS)


def citation(method: str) -> str:
    """BibTeX entries for a method.

    Args:
        method: One of :func:`methods`, in any case.

    Returns:
        The entries, separated by blank lines.

    Raises:
        ValueError: For an unknown name, with the list.
    """
    if method.lower() not in _METHODS:
        raise ValueError(f"There is no citation for {method!r}; known are {', '.join(_METHODS)}.")
    return "\n\n".join(_ENTRIES[name] for name in _METHODS[method.lower()])
