"""What to cite for a method: BibTeX entries by the name of the method."""

_ENTRIES = {
    "oHMC": """@misc{yanush2019hamiltonian,
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

@misc{betancourt2017conceptual,
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
    "SGHMC": """@inproceedings{chen2014stochastic,
  title = {Stochastic Gradient {H}amiltonian {M}onte {C}arlo},
  author = {Chen, Tianqi and Fox, Emily B. and Guestrin, Carlos},
  booktitle = {Proceedings of the 31st International Conference on Machine Learning},
  pages = {1683--1691}, year = {2014}
}""",
    "BAOAB": """@article{leimkuhler2013rational,
  title = {Rational Construction of Stochastic Numerical Methods for Molecular Sampling},
  author = {Leimkuhler, Benedict and Matthews, Charles},
  journal = {Applied Mathematics Research eXpress},
  volume = {2013}, number = {1}, pages = {34--56}, year = {2013}
}""",
    "SGLD": """@inproceedings{welling2011bayesian,
  title = {Bayesian Learning via Stochastic Gradient {L}angevin Dynamics},
  author = {Welling, Max and Teh, Yee Whye},
  booktitle = {Proceedings of the 28th International Conference on Machine Learning},
  pages = {681--688}, year = {2011}
}""",
    "SGRLD": """@article{yu2023scalable,
  title = {Scalable Stochastic Gradient {R}iemannian {L}angevin Dynamics in Non-Diagonal Metrics},
  author = {Yu, Hanlin and Hartmann, Marcelo and Williams, Bernardo and Klami, Arto},
  journal = {Transactions on Machine Learning Research},
  year = {2023},
  note = {arXiv:2303.05101}
}""",
    "pSGLD": """@inproceedings{li2016preconditioned,
  title = {Preconditioned Stochastic Gradient {L}angevin Dynamics for Deep Neural Networks},
  author = {Li, Chunyuan and Chen, Changyou and Carlson, David and Carin, Lawrence},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
  volume = {30}, year = {2016}
}""",
    "Wenzel": """@inproceedings{wenzel2020good,
  title = {How Good is the {B}ayes Posterior in Deep Neural Networks Really?},
  author = {Wenzel, Florian and Roth, Kevin and Veeling, Bastiaan S. and {\\'S}wi{\\k{a}}tkowski, Jakub and
            Tran, Linh and Mandt, Stephan and Snoek, Jasper and Salimans, Tim and Jenatton, Rodolphe and
            Nowozin, Sebastian},
  booktitle = {Proceedings of the 37th International Conference on Machine Learning},
  pages = {10248--10259}, year = {2020}
}""",
    "Monge": """@inproceedings{hartmann2022lagrangian,
  title = {Lagrangian Manifold {M}onte {C}arlo on {M}onge Patches},
  author = {Hartmann, Marcelo and Girolami, Mark and Klami, Arto},
  booktitle = {Proceedings of the 25th International Conference on Artificial Intelligence and Statistics},
  pages = {4764--4781}, year = {2022}
}""",
    "Shampoo": """@inproceedings{gupta2018shampoo,
  title = {Shampoo: Preconditioned Stochastic Tensor Optimization},
  author = {Gupta, Vineet and Koren, Tomer and Singer, Yoram},
  booktitle = {Proceedings of the 35th International Conference on Machine Learning},
  pages = {1842--1850}, year = {2018}
}""",
    "SOAP": """@misc{vyas2024soap,
  title = {{SOAP}: Improving and Stabilizing {S}hampoo using {A}dam},
  author = {Vyas, Nikhil and Morwani, Depen and Zhao, Rosie and Kwun, Mujin and Shapira, Itai and
            Brandfonbrener, David and Janson, Lucas and Kakade, Sham},
  year = {2024},
  note = {arXiv:2409.11321}
}""",
    "control variates": """@article{baker2019control,
  title = {Control Variates for Stochastic Gradient {MCMC}},
  author = {Baker, Jack and Fearnhead, Paul and Fox, Emily B. and Nemeth, Christopher},
  journal = {Statistics and Computing},
  volume = {29}, pages = {599--615}, year = {2019}
}""",
    "ChEES": """@inproceedings{hoffman2021adaptive,
  title = {An Adaptive-{MCMC} Scheme for Setting Trajectory Lengths in {H}amiltonian {M}onte {C}arlo},
  author = {Hoffman, Matthew and Radul, Alexey and Sountsov, Pavel},
  booktitle = {Proceedings of the 24th International Conference on Artificial Intelligence and Statistics},
  pages = {3907--3915}, year = {2021}
}""",
    "polar": """@article{jauch2021monte,
  title = {{M}onte {C}arlo Simulation on the {S}tiefel Manifold via Polar Expansion},
  author = {Jauch, Michael and Hoff, Peter D. and Dunson, David B.},
  journal = {Journal of Computational and Graphical Statistics},
  volume = {30}, number = {3}, pages = {622--631}, year = {2021}
}""",
    "Cayley chart": """@article{jauch2020random,
  title = {Random Orthogonal Matrices and the {C}ayley Transform},
  author = {Jauch, Michael and Hoff, Peter D. and Dunson, David B.},
  journal = {Bernoulli},
  volume = {26}, number = {2}, pages = {1560--1586}, year = {2020}
}""",
    "Householder": """@article{stewart1980efficient,
  title = {The Efficient Generation of Random Orthogonal Matrices with an Application to Condition Estimators},
  author = {Stewart, G. W.},
  journal = {SIAM Journal on Numerical Analysis},
  volume = {17}, number = {3}, pages = {403--409}, year = {1980}
}""",
    "matrix Bingham-von Mises-Fisher": """@article{hoff2009simulation,
  title = {Simulation of the Matrix {B}ingham--von {M}ises--{F}isher Distribution, With Applications to Multivariate
           and Relational Data},
  author = {Hoff, Peter D.},
  journal = {Journal of Computational and Graphical Statistics},
  volume = {18}, number = {2}, pages = {438--456}, year = {2009}
}""",
    "von Mises-Fisher": """@article{wood1994simulation,
  title = {Simulation of the von {M}ises {F}isher Distribution},
  author = {Wood, Andrew T. A.},
  journal = {Communications in Statistics - Simulation and Computation},
  volume = {23}, number = {1}, pages = {157--164}, year = {1994}
}""",
    "Bingham": """@article{kent2018new,
  title = {A New Unified Approach for the Simulation of a Wide Class of Directional Distributions},
  author = {Kent, John T. and Ganeiber, Asaad M. and Mardia, Kanti V.},
  journal = {Journal of Computational and Graphical Statistics},
  volume = {27}, number = {2}, pages = {291--301}, year = {2018}
}""",
    "eigenmodel": """@inproceedings{hoff2007modeling,
  title = {Modeling Homophily and Stochastic Equivalence in Symmetric Relational Data},
  author = {Hoff, Peter D.},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {20}, year = {2007}
}""",
    "IBFA": """@article{klami2013bayesian,
  title = {Bayesian Canonical Correlation Analysis},
  author = {Klami, Arto and Virtanen, Seppo and Kaski, Samuel},
  journal = {Journal of Machine Learning Research},
  volume = {14}, pages = {965--1003}, year = {2013}
}""",
    "factorization": """@inproceedings{salakhutdinov2008bayesian,
  title = {Bayesian Probabilistic Matrix Factorization using {M}arkov Chain {M}onte {C}arlo},
  author = {Salakhutdinov, Ruslan and Mnih, Andriy},
  booktitle = {Proceedings of the 25th International Conference on Machine Learning},
  pages = {880--887}, year = {2008}
}""",
    "networks": """@phdthesis{neal1995bayesian,
  title = {Bayesian Learning for Neural Networks},
  author = {Neal, Radford M.},
  school = {University of Toronto},
  year = {1995}
}""",
    "horseshoe": """@inproceedings{carvalho2009handling,
  title = {Handling Sparsity via the Horseshoe},
  author = {Carvalho, Carlos M. and Polson, Nicholas G. and Scott, James G.},
  booktitle = {Proceedings of the 12th International Conference on Artificial Intelligence and Statistics},
  pages = {73--80}, year = {2009}
}""",
    "curvature": """@inproceedings{srinivas2022efficient,
  title = {Efficient Training of Low-Curvature Neural Networks},
  author = {Srinivas, Suraj and Matoba, Kyle and Lakkaraju, Himabindu and Fleuret, Fran{\\c{c}}ois},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {35}, year = {2022}
}""",
    "WHVI": """@inproceedings{rossi2020walsh,
  title = {{W}alsh-{H}adamard Variational Inference for {B}ayesian Deep Learning},
  author = {Rossi, Simone and Marmin, S{\\'e}bastien and Filippone, Maurizio},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {33}, year = {2020}
}""",
    "local reparametrisation": """@inproceedings{kingma2015variational,
  title = {Variational Dropout and the Local Reparameterization Trick},
  author = {Kingma, Diederik P. and Salimans, Tim and Welling, Max},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {28}, year = {2015}
}""",
    "mean-field": """@inproceedings{blundell2015weight,
  title = {Weight Uncertainty in Neural Networks},
  author = {Blundell, Charles and Cornebise, Julien and Kavukcuoglu, Koray and Wierstra, Daan},
  booktitle = {Proceedings of the 32nd International Conference on Machine Learning},
  pages = {1613--1622}, year = {2015}
}""",
    "dropout": """@inproceedings{gal2016dropout,
  title = {Dropout as a {B}ayesian Approximation: Representing Model Uncertainty in Deep Learning},
  author = {Gal, Yarin and Ghahramani, Zoubin},
  booktitle = {Proceedings of the 33rd International Conference on Machine Learning},
  pages = {1050--1059}, year = {2016}
}""",
    "VOGN": """@inproceedings{khan2018fast,
  title = {Fast and Scalable {B}ayesian Deep Learning by Weight-Perturbation in {A}dam},
  author = {Khan, Mohammad Emtiyaz and Nielsen, Didrik and Tangkaratt, Voot and Lin, Wu and Gal, Yarin and
            Srivastava, Akash},
  booktitle = {Proceedings of the 35th International Conference on Machine Learning},
  pages = {2611--2620}, year = {2018}
}""",
    "planar flows": """@inproceedings{rezende2015variational,
  title = {Variational Inference with Normalizing Flows},
  author = {Rezende, Danilo Jimenez and Mohamed, Shakir},
  booktitle = {Proceedings of the 32nd International Conference on Machine Learning},
  pages = {1530--1538}, year = {2015}
}""",
    "Laplace": """@inproceedings{daxberger2021laplace,
  title = {{L}aplace Redux - Effortless {B}ayesian Deep Learning},
  author = {Daxberger, Erik and Kristiadi, Agustinus and Immer, Alexander and Eschenhagen, Runa and Bauer, Matthias and
            Hennig, Philipp},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {34}, year = {2021}
}""",
    "random features": """@inproceedings{cutajar2017random,
  title = {Random Feature Expansions for Deep {G}aussian Processes},
  author = {Cutajar, Kurt and Bonilla, Edwin V. and Michiardi, Pietro and Filippone, Maurizio},
  booktitle = {Proceedings of the 34th International Conference on Machine Learning},
  pages = {884--893}, year = {2017}
}""",
    "nested R-hat": """@article{margossian2024nested,
  title = {Nested $\\widehat{R}$: Assessing the Convergence of {M}arkov Chain {M}onte {C}arlo When Running Many
           Short Chains},
  author = {Margossian, Charles C. and Hoffman, Matthew D. and Sountsov, Pavel and Riou-Durand, Lionel and
            Vehtari, Aki and Gelman, Andrew},
  journal = {Bayesian Analysis},
  year = {2024}
}""",
    "APS": """@inproceedings{romano2020classification,
  title = {Classification with Valid and Adaptive Coverage},
  author = {Romano, Yaniv and Sesia, Matteo and Cand{\\`e}s, Emmanuel J.},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {33}, year = {2020}
}""",
    "conformal": """@article{lei2018distribution,
  title = {Distribution-Free Predictive Inference for Regression},
  author = {Lei, Jing and G'Sell, Max and Rinaldo, Alessandro and Tibshirani, Ryan J. and Wasserman, Larry},
  journal = {Journal of the American Statistical Association},
  volume = {113}, number = {523}, pages = {1094--1111}, year = {2018}
}""",
}

# What each thing a user can ask for rests on.
_METHODS = {
    # exact samplers
    "hmc": ("oHMC", "geodesic", "ChEES"),
    "ohmc": ("oHMC",),
    "geodesic": ("geodesic",),
    "nuts": ("NUTS", "oHMC"),
    "many-chains": ("ChEES", "nested R-hat"),
    # stochastic gradients
    "sghmc": ("SGHMC", "BAOAB", "oHMC"),
    "osghmc": ("oHMC", "SGHMC"),
    "sgrld": ("SGRLD", "SGLD"),
    "identity": ("SGLD",),
    "rmsprop": ("pSGLD", "SGRLD"),
    "wenzel": ("Wenzel", "SGRLD"),
    "monge": ("Monge", "SGRLD"),
    "shampoo": ("Shampoo", "SGRLD"),
    "soap": ("SOAP", "Shampoo"),
    "control-variates": ("control variates",),
    # coordinates and laws of orthonormal matrices
    "givens": ("Givens",),
    "polar": ("polar",),
    "householder": ("Householder",),
    "cayley-chart": ("Cayley chart",),
    "matrix-langevin": ("matrix Bingham-von Mises-Fisher",),
    "matrix-bingham": ("matrix Bingham-von Mises-Fisher", "Bingham"),
    "von-mises-fisher": ("von Mises-Fisher",),
    # variational inference
    "whvi": ("WHVI",),
    "mean-field": ("mean-field", "local reparametrisation"),
    "mc-dropout": ("dropout",),
    "vogn": ("VOGN",),
    "planar-flow": ("planar flows",),
    "laplace": ("Laplace",),
    "random-features": ("random features", "WHVI"),
    # models, by the names of `geodax fit`
    "pca": ("PPCA", "Givens", "oHMC", "NUTS"),
    "cca": ("Givens", "IBFA", "NUTS"),
    "network": ("Givens", "NUTS"),
    "eigenmodel": ("eigenmodel", "matrix Bingham-von Mises-Fisher", "NUTS"),
    "unit-network": ("Givens", "NUTS"),
    "classifier": ("networks", "SGHMC", "oHMC", "SGRLD"),
    "regressor": ("networks", "SGHMC", "oHMC", "SGRLD"),
    "mlp": ("networks", "SGHMC", "oHMC", "SGRLD"),
    "factorization": ("oHMC", "factorization", "SGHMC"),
    # what judges the draws
    "diagnostics": ("R-hat", "nested R-hat"),
    "conformal": ("APS", "conformal"),
    "horseshoe": ("horseshoe",),
    "curvature": ("curvature",),
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
