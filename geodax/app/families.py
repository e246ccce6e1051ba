"""The models of ``geodax fit``: their options, what their commands say, and where the rest of each is.

Light to import: parsing a command line loads neither JAX nor an estimator.
"""

import dataclasses
import functools
import importlib
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from geodax.models.cca.options import CCAOptions
from geodax.models.eigenmodel.options import EigenmodelOptions
from geodax.models.factorization.options import FactorizationOptions
from geodax.models.mlp.options import MLPOptions, MLPRegressorOptions
from geodax.models.network.options import NetworkOptions
from geodax.models.pca.options import PCAOptions
from geodax.models.unit_network.options import UnitNetworkOptions

if TYPE_CHECKING:
    from geodax.app.family import AbstractRunKind


@dataclasses.dataclass(eq=False, kw_only=True)
class ContactsOptions(NetworkOptions):
    """Options of ``geodax fit network``.

    Args:
        window: Length of a window, in the unit of the times of the file.
    """

    window: float = 660.0


@dataclasses.dataclass(eq=False, kw_only=True)
class UnitNetworkTableOptions(UnitNetworkOptions):
    """Options of ``geodax fit unit-network``.

    Args:
        target: Column that is explained by the others; must be given.
    """

    target: str = ""


@dataclasses.dataclass(eq=False, kw_only=True)
class GroupsOptions(CCAOptions):
    """Options of ``geodax fit cca``.

    Args:
        group: Column of the groups; the first text column if left out.
        first_view: Columns of the first view: names or patterns such as 'protein*', between commas.
        second_view: Columns of the second view; all other numeric columns if left out.
    """

    group: str = ""
    first_view: str = ""
    second_view: str = ""


@dataclasses.dataclass(eq=False, kw_only=True)
class ClassifierOptions(MLPOptions):
    """Options of ``geodax fit classifier``.

    Args:
        target: Column that is predicted; must be given: classes (text or integers), or numbers for a regressor.
        categories: Columns of text, or of codes, that are inputs too: each category is a column of 0 and 1.
        test_fraction: Fraction of the rows that is not fitted but predicted in the report.
        widths: Units of the hidden layers, between commas; none for logistic or linear regression.
        rank: Rank of the weights of the hidden layers; full if left out.
        prior: gaussian, laplace, student-t, horseshoe, local-horseshoe or hierarchical-horseshoe.
        inference: mcmc, or by variational inference: whvi, mean-field or mc-dropout.
        metric: identity, rmsprop, wenzel, monge or shampoo.
    """

    target: str = ""
    categories: tuple[str, ...] = ()
    test_fraction: float = 0.2
    widths: str = "50,50"
    rank: int | None = None
    prior: str = "gaussian"
    prior_scale: float | Literal["fan_in"] = "fan_in"
    inference: str = "mcmc"
    metric: str = "identity"


@dataclasses.dataclass(eq=False, kw_only=True)
class RegressorOptions(ClassifierOptions, MLPRegressorOptions):
    """Options of ``geodax fit regressor``."""


@dataclasses.dataclass(eq=False, kw_only=True)
class RatingsOptions(FactorizationOptions):
    """Options of ``geodax fit factorization``.

    Args:
        user: Column of the users; if left out, one with such a name (user, customer, ...), or else the first column.
        item: Column of the items; if left out, one with such a name (item, movieId, product, ...), or else the second.
        rating: Column of the ratings; if left out, one with such a name (rating, stars, ...), or else the third.
        test_fraction: Fraction of the ratings that is not fitted but predicted in the report.
    """

    user: str = ""
    item: str = ""
    rating: str = ""
    test_fraction: float = 0.1


class Family(NamedTuple):
    """A model of ``geodax fit``.

    Attributes:
        options: The dataclass of its options.
        place: Module and class of its :class:`~geodax.app.family.AbstractRunKind`.
        summary: One sentence for the help.
        file: What the file is.
        columns: What ``--columns`` chooses; empty where there is no such option.
    """

    options: type
    place: tuple[str, str]
    summary: str
    file: str
    columns: str = ""


_INPUTS = "Inputs to use; all other numeric columns if left out."

FAMILIES = {
    "pca": Family(
        PCAOptions,
        ("pca.run", "PCARun"),
        "Bayesian principal component analysis: orthonormal loadings, ordered scales, noise, mean.",
        "CSV file, a row for each observation; text columns are left out, missing cells are allowed.",
        "Columns to use; all numeric ones if left out.",
    ),
    "eigenmodel": Family(
        EigenmodelOptions,
        ("network.run", "EigenmodelRun"),
        "Eigenmodel of a symmetric network of 0 and 1, or of counts: orthonormal vectors, their weights, an intercept.",
        "Adjacency matrix, or a list of edges: two nodes, and a value if there is a third column.",
    ),
    "network": Family(
        ContactsOptions,
        ("network.run", "NetworkRun"),
        "Hidden states of contacts between classes over time, each with a low-rank matrix of rates.",
        "Contacts: time, one side, other side, and, if sides belong to classes, the class of each.",
    ),
    "unit-network": Family(
        UnitNetworkTableOptions,
        ("unit_network.run", "UnitNetworkRun"),
        "Regression by a ReLU network whose hidden units have unit vectors for weights.",
        "CSV file, a row for each observation; text columns and rows with missing cells are left out.",
        _INPUTS,
    ),
    "cca": Family(
        GroupsOptions,
        ("cca.run", "CCARun"),
        "Canonical correlation analysis of two views in groups, whose orthonormal matrices are shrunk together.",
        "CSV file, a row for each observation: the group, and the numeric columns of both views.",
    ),
    "classifier": Family(
        ClassifierOptions,
        ("mlp.run", "ClassifierRun"),
        "Classification by the posterior ensemble of a network of dense layers.",
        "CSV file, a row for each example; inputs are numeric columns or categories, classes are text or integers.",
        _INPUTS,
    ),
    "regressor": Family(
        RegressorOptions,
        ("mlp.run", "RegressorRun"),
        "Regression by the posterior ensemble of a network of dense layers.",
        "CSV file, a row for each example; inputs are numeric columns or categories, the target is numeric.",
        _INPUTS,
    ),
    "factorization": Family(
        RatingsOptions,
        ("factorization.run", "FactorizationRun"),
        "Low-rank factorization of ratings of items by users, with orthonormal factors.",
        "CSV file, a row for each rating: user, item, rating.",
    ),
}
"""What can be fitted from the command line, by name."""


@functools.cache
def run_kind(name: str) -> "AbstractRunKind":
    """The files, diagnostics and reports of a model.

    Args:
        name: A name in :data:`FAMILIES`.

    Returns:
        Its run kind, imported on first use.
    """
    module, kind = FAMILIES[name].place
    return getattr(importlib.import_module(f"geodax.app.{module}"), kind)()


def name_of(options: Any) -> str:
    """The name of the model that options belong to."""
    return next(name for name, family in FAMILIES.items() if type(options) is family.options)
