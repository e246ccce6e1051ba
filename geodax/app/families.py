"""The models of ``geodax fit``: their options, help texts, and the modules that implement them.

Light to import: parsing a command line loads neither JAX nor an estimator.
"""

import dataclasses
import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from geodax._wording import argument
from geodax.models.cca.options import CCAOptions
from geodax.models.eigenmodel.options import EigenmodelOptions
from geodax.models.factorization.options import FactorizationOptions
from geodax.models.mlp.options import MLPClassifierOptions, MLPOptions, MLPRegressorOptions
from geodax.models.network.options import NetworkOptions
from geodax.models.pca.options import PCAOptions
from geodax.models.unit_network.options import UnitNetworkOptions

if TYPE_CHECKING:
    from geodax.app.family import AbstractRunKind


@dataclasses.dataclass(eq=False, kw_only=True)
class NetworkTableOptions(EigenmodelOptions):
    """Options of ``geodax fit eigenmodel``.

    Args:
        first_node: Column of one node of each edge, in a table with other columns than nodes and value.
        second_node: Column of the other node.
        value: Column of the values of the edges; by default every edge listed is 1.
        test_fraction: Fraction of the pairs to hold out and predict in the report; --seed chooses them.
    """

    first_node: str = ""
    second_node: str = ""
    value: str = ""
    test_fraction: float = 0.0


@dataclasses.dataclass(eq=False, kw_only=True)
class ContactsOptions(NetworkOptions):
    """Options of ``geodax fit network``.

    Args:
        window: Length of a window, in the time unit of the file; by default one that gives 100 to 250 windows.
        start: Start of the first window; by default the time of the first contact.
        test_fraction: Fraction of the counts of pairs in windows to hold out and predict in the report; --seed chooses
            them.
    """

    window: float | None = None
    start: float | None = None
    test_fraction: float = 0.0


@dataclasses.dataclass(eq=False, kw_only=True)
class UnitNetworkTableOptions(UnitNetworkOptions):
    """Options of ``geodax fit unit-network``.

    Args:
        target: Column to predict from the others; required.
    """

    target: str = ""


@dataclasses.dataclass(eq=False, kw_only=True)
class GroupsOptions(CCAOptions):
    """Options of ``geodax fit cca``.

    Args:
        group: Column of the groups; by default the first text column with repeated entries, or one group of all rows.
        first_view: Columns of the first view: comma-separated names or patterns such as 'protein*'.
        second_view: Columns of the second view; by default all other numeric columns but dates.
    """

    group: str = ""
    first_view: str = ""
    second_view: str = ""


@dataclasses.dataclass(eq=False, kw_only=True)
class LabelledOptions(MLPOptions):
    """Options of ``geodax fit classifier`` and ``geodax fit regressor``.

    Args:
        target: Column to predict; required. It holds classes, text or integers.
        categories: Columns of codes, or of text that looks like names, to use as categories. Other text columns are
            categories by default.
        drop: Columns to leave out.
        weights: Column of the weights of the rows: a row of weight 2 counts as two equal rows. All are 1 by default.
        groups: Column of groups, such as patients, whose rows are held out together. It is no input.
        time: Column of dates or numbers by which the latest rows are held out; by default they are chosen at random.
        test_fraction: Fraction of the rows to hold out and predict in the report; --seed chooses them.
        widths: Units of the hidden layers, comma-separated; empty for logistic or linear regression.
        rank: Rank of the weights of the hidden layers; full by default.
        prior: gaussian, laplace, student-t, horseshoe, local-horseshoe or hierarchical-horseshoe.
        inference: mcmc, ensemble, swag, multi-swag or laplace, or one of the variational methods whvi, mean-field,
            mc-dropout, ivon and noisy-kfac.
        metric: identity, rmsprop, wenzel, monge or shampoo.
    """

    target: Any = ""
    categories: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    weights: str = ""
    groups: str = ""
    time: str = ""
    test_fraction: float = 0.2
    widths: str = "50,50"
    rank: int | None = None
    prior: str = "gaussian"
    prior_scale: float | Literal["fan_in"] = "fan_in"
    inference: str = "mcmc"
    metric: str = "identity"


@dataclasses.dataclass(eq=False, kw_only=True)
class ClassifierOptions(LabelledOptions, MLPClassifierOptions):
    """Options of ``geodax fit classifier``.

    Args:
        likelihood: categorical, or ordinal for ordered classes.
        class_order: The ordered classes from lowest to highest; by default numbers by value.
        class_weight: balanced, with which all classes have the same total weight; by default all rows have weight 1.
    """

    target: str = ""
    class_order: tuple[str, ...] = ()
    class_weight: Literal["balanced"] | None = None


@dataclasses.dataclass(eq=False, kw_only=True)
class RegressorOptions(LabelledOptions, MLPRegressorOptions):
    """Options of ``geodax fit regressor``.

    Args:
        target: Columns to predict, one or several of numbers; required.
        likelihood: gaussian, heteroscedastic, student-t, log-normal, poisson or negative-binomial.
    """

    target: tuple[str, ...] = ()
    likelihood: str = "gaussian"


@dataclasses.dataclass(eq=False, kw_only=True)
class RatingsOptions(FactorizationOptions):
    """Options of ``geodax fit factorization``.

    Args:
        user: Column of the users; by default one with a matching name (user, customer, ...), else the first column.
        item: Column of the items; by default one with a matching name (item, movieId, product, ...), else the second.
        rating: Column of the ratings; by default one with a matching name (rating, stars, ...), else the third.
        time: Column of dates or numbers by which the latest ratings are held out; by default they are chosen at random.
        test_fraction: Fraction of the ratings to hold out and predict in the report; --seed chooses them.
    """

    user: str = ""
    item: str = ""
    rating: str = ""
    time: str = ""
    test_fraction: float = 0.1


class Family(NamedTuple):
    """A model of ``geodax fit``.

    Attributes:
        options: The dataclass of its options.
        place: Module and class of its :class:`~geodax.app.family.AbstractRunKind`.
        summary: One sentence for the help.
        file: Description of the input file.
        columns: Help text of ``--columns``; empty if there is no such option.
    """

    options: type
    place: tuple[str, str]
    summary: str
    file: str
    columns: str = ""


_NUMBERS = "Input columns; by default all other numeric columns."
_INPUTS = "Input columns; by default all others, except text that looks like names."

FAMILIES = {
    "pca": Family(
        PCAOptions,
        ("pca.run", "PCARun"),
        "Bayesian principal component analysis, or factor analysis: orthonormal loadings, ordered scales, noise, mean.",
        "CSV file with one row per observation; text columns are left out, missing cells are allowed.",
        "Columns to use; by default all numeric columns but dates.",
    ),
    "eigenmodel": Family(
        NetworkTableOptions,
        ("network.run", "EigenmodelRun"),
        "Eigenmodel of a symmetric network of 0 and 1, or of counts: orthonormal vectors, weights and an intercept.",
        "Adjacency matrix, edge list (two nodes, optionally a value), or graph (.gml, .graphml, .gexf, .net, .mtx).",
    ),
    "network": Family(
        ContactsOptions,
        ("network.run", "NetworkRun"),
        "Hidden Markov model of contacts between classes over time; each state has a low-rank matrix of rates.",
        "Contacts: time, the two persons, and optionally the class of each.",
    ),
    "unit-network": Family(
        UnitNetworkTableOptions,
        ("unit_network.run", "UnitNetworkRun"),
        "Regression with a ReLU network whose hidden units have unit weight vectors.",
        "CSV file with one row per observation; text columns are left out, inputs may be missing.",
        _NUMBERS,
    ),
    "cca": Family(
        GroupsOptions,
        ("cca.run", "CCARun"),
        "Canonical correlation analysis of two views in groups, with partial pooling of the orthonormal matrices.",
        "CSV file with one row per observation: the group, and the numeric columns of both views.",
    ),
    "classifier": Family(
        ClassifierOptions,
        ("mlp.run", "ClassifierRun"),
        "Classification with the posterior ensemble of a dense network.",
        "CSV file with one row per example; inputs are numbers, dates or categories; classes are text or integers.",
        _INPUTS,
    ),
    "regressor": Family(
        RegressorOptions,
        ("mlp.run", "RegressorRun"),
        "Regression with the posterior ensemble of a dense network.",
        "CSV file with one row per example; inputs are numbers, dates or categories; targets are numeric.",
        _INPUTS,
    ),
    "factorization": Family(
        RatingsOptions,
        ("factorization.run", "FactorizationRun"),
        "Low-rank factorization of ratings of items by users, with orthonormal factors.",
        "CSV file with one row per rating: user, item, rating.",
    ),
}
"""The models of the command line, by name."""


_OTHERS = ("ensemble", "swag", "multi-swag", "laplace", "whvi", "mean-field", "mc-dropout", "ivon", "noisy-kfac")
_UNUSED: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "activation": {"widths": ("", "none")},
    "batch_size": {"sampler": ("nuts",)},
    "dispersion_scale": {"counts": ("poisson",)},
    "friction": {"sampler": ("sgrld", "nuts"), "inference": _OTHERS},
    "intercept_scale": {"intercept": (False,)},
    "metric": {"inference": _OTHERS},
    "num_samples": {"inference": ("ensemble",)},
    "offset_scale": {"offsets": (False,)},
    "orthogonal": {"widths": ("", "none")},
    "prior_scale": {"inference": ("whvi",)},
    "rank": {"widths": ("", "none")},
    "sampler": {"inference": _OTHERS},
    "spread_prior_scale": {"pooling": ("separate", "complete")},
    "step_size": {"inference": ("ensemble",)},
    "target_acceptance_rate": {"sampler": ("sghmc",)},
    "thinning": {"inference": _OTHERS},
    "weight_scale": {"weights": ("unit",)},
}
"""Options, and the values of other options with which they are not used."""


def unused(options: Any) -> list[str]:
    """Say which options of a model were given although others make them have no effect."""
    defaults, found = type(options)(), vars(options)
    return [
        f"{argument(name, found[name])} has no effect with {argument(other, found[other])}."
        for name, others in _UNUSED.items()
        for other, values in others.items()
        if name in found and found[name] != getattr(defaults, name) and found.get(other) in values
    ]


@functools.cache
def run_kind(name: str) -> "AbstractRunKind":
    """Return the run kind of a model in :data:`FAMILIES`, imported on first use."""
    module, kind = FAMILIES[name].place
    return getattr(importlib.import_module(f"geodax.app.{module}"), kind)()


def name_of(options: Any) -> str:
    """Return the name of the model that the options belong to."""
    return next(name for name, family in FAMILIES.items() if type(options) is family.options)
