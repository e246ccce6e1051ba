"""``geodax fit MODEL FILE --out RUN``: one command a model."""

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import OmitArgPrefixes, arg
from tyro.extras import SubcommandApp

from geodax.app.cca.run import CCAOptions
from geodax.app.commands.options import (
    HERE,
    DialectArgument,
    File,
    NewRunArgument,
    NewRunOptions,
    WhereArgument,
    WhereOptions,
)
from geodax.app.commands.terminal import show
from geodax.app.factorization.run import FactorizationOptions
from geodax.app.mlp.run import ClassifierOptions, RegressorOptions
from geodax.app.network.run import EigenmodelOptions, NetworkOptions
from geodax.app.pca.run import PCAOptions
from geodax.app.run_folder.actions import Options, fit_run
from geodax.app.tables.dialect import FOUND
from geodax.app.unit_network.run import UnitNetworkOptions

fit = SubcommandApp()


@fit.command(name="pca")
def fit_pca(
    file: File,
    run: NewRunArgument,
    options: Annotated[OmitArgPrefixes[PCAOptions], arg(name="")] = PCAOptions(),  # noqa: B008 - frozen
    columns: tuple[str, ...] | None = None,
    where: WhereArgument = HERE,
    dialect: DialectArgument = FOUND,
) -> None:
    """Bayesian principal component analysis: orthonormal loadings, ordered scales, noise, mean.

    Args:
        file: CSV file, a row for each observation; text columns are left out, missing cells are allowed.
        run: The run that is made.
        options: Options of the model.
        columns: Columns to use; all numeric ones if left out.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, run, where, columns=columns, dialect=dialect)


@fit.command(name="eigenmodel")
def fit_eigenmodel(
    file: File,
    run: NewRunArgument,
    options: Annotated[OmitArgPrefixes[EigenmodelOptions], arg(name="")] = EigenmodelOptions(),  # noqa: B008 - frozen
    where: WhereArgument = HERE,
    dialect: DialectArgument = FOUND,
) -> None:
    """Eigenmodel of a symmetric network of 0 and 1, or of counts: orthonormal vectors, their weights, an intercept.

    Args:
        file: Adjacency matrix, or a list of edges: two nodes, and a value if there is a third column.
        run: The run that is made.
        options: Options of the model.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, run, where, dialect=dialect)


@fit.command(name="network")
def fit_network(
    file: File,
    run: NewRunArgument,
    options: Annotated[OmitArgPrefixes[NetworkOptions], arg(name="")] = NetworkOptions(),  # noqa: B008 - frozen
    where: WhereArgument = HERE,
    dialect: DialectArgument = FOUND,
) -> None:
    """Hidden states of contacts between classes over time, each with a low-rank matrix of rates.

    Args:
        file: Contacts: time, one side, other side, and, if sides belong to classes, the class of each.
        run: The run that is made.
        options: Options of the model.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, run, where, dialect=dialect)


@fit.command(name="unit-network")
def fit_unit_network(
    file: File,
    run: NewRunArgument,
    options: Annotated[OmitArgPrefixes[UnitNetworkOptions], arg(name="")] = UnitNetworkOptions(),  # noqa: B008 - frozen
    columns: tuple[str, ...] | None = None,
    where: WhereArgument = HERE,
    dialect: DialectArgument = FOUND,
) -> None:
    """Regression by a ReLU network whose hidden units have unit vectors for weights.

    Args:
        file: CSV file, a row for each observation; text columns and rows with missing cells are left out.
        run: The run that is made.
        options: Options of the model; --target names the column to explain.
        columns: Inputs to use; all other numeric columns if left out.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, run, where, columns=columns, dialect=dialect)


@fit.command(name="cca")
def fit_cca(
    file: File,
    run: NewRunArgument,
    options: Annotated[OmitArgPrefixes[CCAOptions], arg(name="")] = CCAOptions(),  # noqa: B008 - frozen
    where: WhereArgument = HERE,
    dialect: DialectArgument = FOUND,
) -> None:
    """Canonical correlation analysis of two views in groups, whose orthonormal matrices are shrunk together.

    Args:
        file: CSV file, a row for each observation: the group, and the numeric columns of both views.
        run: The run that is made.
        options: Options of the model.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, run, where, dialect=dialect)


@fit.command(name="classifier")
def fit_classifier(
    file: File,
    run: NewRunArgument,
    options: Annotated[OmitArgPrefixes[ClassifierOptions], arg(name="")] = ClassifierOptions(),  # noqa: B008 - frozen
    columns: tuple[str, ...] | None = None,
    where: WhereArgument = HERE,
    dialect: DialectArgument = FOUND,
) -> None:
    """Classification by the posterior ensemble of a network of dense layers.

    Args:
        file: CSV file, a row for each example; inputs are numeric columns or categories, classes text or whole numbers.
        run: The run that is made.
        options: Options of the model; --target names the column to predict.
        columns: Inputs to use; all other numeric columns if left out.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, run, where, columns=columns, dialect=dialect)


@fit.command(name="regressor")
def fit_regressor(
    file: File,
    run: NewRunArgument,
    options: Annotated[OmitArgPrefixes[RegressorOptions], arg(name="")] = RegressorOptions(),  # noqa: B008 - frozen
    columns: tuple[str, ...] | None = None,
    where: WhereArgument = HERE,
    dialect: DialectArgument = FOUND,
) -> None:
    """Regression by the posterior ensemble of a network of dense layers.

    Args:
        file: CSV file, a row for each example; inputs are numeric columns or categories, the target is numeric.
        run: The run that is made.
        options: Options of the model; --target names the column to predict.
        columns: Inputs to use; all other numeric columns if left out.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, run, where, columns=columns, dialect=dialect)


@fit.command(name="factorization")
def fit_factorization(
    file: File,
    run: NewRunArgument,
    options: Annotated[OmitArgPrefixes[FactorizationOptions], arg(name="")] = FactorizationOptions(),  # noqa: B008
    where: WhereArgument = HERE,
    dialect: DialectArgument = FOUND,
) -> None:
    """Low-rank factorisation of ratings of items by users, with orthonormal factors.

    Args:
        file: CSV file, a row for each rating: user, item, rating.
        run: The run that is made.
        options: Options of the model.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, run, where, dialect=dialect)


def _fit(file: Path, options: Options, run: NewRunOptions, where: WhereOptions, **others: Any) -> None:
    """Fit, and say what was found."""
    where.join()
    show(fit_run(file, options, run.out, seed=run.seed, overwrite=run.overwrite, **others, **where.how(run.progress)))
