"""Checks of users' arguments before tracing. Messages say what was expected, what was found and what to do.

Each function returns the argument in the form in which the library uses it. ``owner`` is the function or class that the
message begins with, ``name`` its argument, ``value`` the argument's value. A wrong kind of value raises TypeError, a
value out of range ValueError.
"""

import contextlib
import inspect
import math
import operator
import sys
import warnings
from collections.abc import Hashable, Iterable, Sequence
from numbers import Real
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from geodax._types import Array, PRNGKey, PyTree
from geodax._wording import argument

LARGEST = 2**31 - 1
"""Largest size of an axis: indices are 32-bit integers."""
_TIMES = ("date", "time", "duration", "period")  # names of data types begin so


def is_series(value: Any) -> bool:
    """Whether a loop can run over a value that is no text; an array without axes only claims to be iterable."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes) and getattr(value, "ndim", 1) != 0


def is_loader(value: Any) -> bool:
    """Whether something can be iterated that is neither an array or tensor nor a pytree of them."""
    return jax.tree_util.all_leaves([value]) and is_series(value) and not hasattr(value, "__array__")


def whole(owner: str, name: str, value: Any, *, least: int = 1, most: int = LARGEST) -> int:
    """Return an integer from ``least`` to ``most``, as a Python int; NumPy integers pass, bools and floats do not."""
    try:
        number = None if isinstance(value, bool | np.bool_ | Tracer) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{owner}: {argument(name)} must be an integer, found {described(value)}.")
    if not least <= number <= most:
        bounds = f"at least {least}" if number < least else f"at most {most:,}"
        raise ValueError(f"{owner}: {argument(name)} must be {bounds}, found {described(number)}.")
    return number


def outside_programs(owner: str, instead: str, *args: Any) -> None:
    """Raise TypeError in a traced program, or for a traced argument; ``instead`` says what to use there."""
    leaves: list[Any] = [jnp.zeros(())]
    for arg in args:
        with contextlib.suppress(TypeError, ValueError):  # of what is no pytree
            leaves += [] if is_loader(arg) else jax.tree.leaves(arg)
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        raise TypeError(
            f"{owner}: called inside jax.jit, vmap, grad or scan, but it compiles its own loop. Call it outside"
            f"{instead}."
        )


def untraced(owner: str, name: str, value: Any) -> None:
    """Raise TypeError for a traced number, whose value cannot be checked."""
    if isinstance(value, Tracer) and value.shape == ():
        raise TypeError(
            f"{owner}: {argument(name)} must be a number, found a traced one, as under jax.jit or jax.vmap. There "
            f"give a schedule, {name}=lambda iteration: value, to a stochastic-gradient sampler, or make one of the "
            "others with any number and set its step size by algorithm.init(position)._replace(step_size=value)."
        )


def number(
    owner: str,
    name: str,
    value: Any,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> float:
    """Return a finite number within bounds, as a Python float; ``above`` and ``below`` are exclusive.

    The value may be an array with one entry and no axis. Raises TypeError if it is not a number.
    """
    untraced(owner, name, value)
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        kinds = jnp.integer, jnp.floating
        is_number = value.shape == () and any(jnp.issubdtype(value.dtype, kind) for kind in kinds)
    else:
        is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number:
        raise TypeError(f"{owner}: {argument(name)} must be a number, found {described(value)}.")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not (math.isfinite(found) and least <= found <= most and above < found < below):
        if above == 0 and (least, most, below) == (-math.inf, math.inf, math.inf):
            raise ValueError(
                f"{owner}: {argument(name)} must be a positive number and finite, found {described(value)}."
            )
        words = [f"at least {least:g}"] * (least > -math.inf) + [f"above {above:g}"] * (above > -math.inf)
        words += [f"at most {most:g}"] * (most < math.inf) + [f"below {below:g}"] * (below < math.inf)
        raise ValueError(
            f"{owner}: {argument(name)} must be {' and '.join([*words, 'finite'])}, found {described(value)}."
        )
    return found


def chosen(owner: str, name: str, value: Any, known: Sequence[str]) -> str:
    """Return ``value`` if it is one of the ``known`` names; otherwise raise ValueError."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{owner}: {argument(name)} must be one of {list(known)}, found {described(value)}.")
    return value


def function(owner: str, name: str, value: Any, kind: str = "a function") -> None:
    """Raise TypeError unless it can be called; ``kind`` says what it takes and returns."""
    if not callable(value):
        raise TypeError(f"{owner}: {name} must be {kind}, found {described(value)}.")


def takes(owner: str, name: str, value: Any, count: int, kind: str) -> None:
    """Raise TypeError unless it is a function of ``count`` arguments, or a built-in one without a signature."""
    function(owner, name, value, kind)
    try:
        inspect.signature(value).bind(*[None] * count)
    except TypeError as error:
        raise TypeError(f"{owner}: {name} must be {kind}, but the given function does not fit: {error}.") from None
    except ValueError:
        pass


def arguments(owner: str, name: str, value: Any) -> None:
    """Raise TypeError unless it is a tuple of arguments, since an array or a list of rows would be unpacked."""
    if not isinstance(value, tuple):
        raise TypeError(f"{owner}: {name} must be a tuple of arguments such as (x, y), found {described(value)}.")


def random_key(owner: str, value: Any) -> PRNGKey:
    """Return a single JAX PRNG key, typed or legacy; raise TypeError for anything else."""
    dtype = getattr(value, "dtype", None)
    is_new = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key) and value.shape == ()
    is_old = isinstance(value, jax.Array | np.ndarray) and dtype == np.uint32 and value.shape in ((2,), (4,))
    if not (is_new or is_old):
        raise TypeError(
            f"{owner}: expected one PRNG key, found {described(value)}. Make one with jax.random.key(seed), several "
            "with jax.random.split."
        )
    key: Any = value
    return key


def shape(owner: str, value: Any) -> tuple[int, ...]:
    """Return a batch shape as a tuple of non-negative sizes, from an integer or a sequence of integers."""
    sizes = value if isinstance(value, tuple | list) else (value,)
    return tuple(whole(owner, "shape", size, least=0) for size in sizes)


def real_dtype(owner: str, value: Any) -> Any:
    """Return ``value`` if it is a floating-point dtype; otherwise raise TypeError."""
    try:
        is_real = value is not None and jnp.issubdtype(jnp.dtype(value), jnp.floating)
    except (TypeError, ValueError):
        is_real = False
    if not is_real:
        raise TypeError(f"{owner}: dtype must be a floating-point type such as jnp.float32, found {described(value)}.")
    return value


def vector(owner: str, value: Any, size: int) -> Array:
    """Return one vector with ``size`` entries, for a layer."""
    x = array(owner, "x", value, kinds="floating-point or complex")
    if x.shape != (size,):
        raise ValueError(
            f"{owner}: expected one vector of {size} numbers, found shape {x.shape}. Use jax.vmap for a batch."
        )
    return x


def image(owner: str, value: Any, channels: int) -> Array:
    """Return one image of shape (channels, height, width), for a layer; integers become floats."""
    x = array(owner, "x", value)
    if x.ndim != 3 or x.shape[0] != channels:
        raise ValueError(
            f"{owner}: expected one image of shape ({channels}, height, width), found shape {x.shape}. Use jax.vmap "
            "for a batch."
        )
    return x


def array(owner: str, name: str, value: Any, *, kinds: str = "floating-point", half: bool = True) -> Array:
    """Return a JAX array of numbers; integers and bools become floats.

    Kinds are ``"floating-point"`` or ``"floating-point or complex"``; linear algebra of LAPACK does not support half
    precision. Raises TypeError for anything else, and ValueError for masked entries.
    """
    if isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        x = value
    else:
        x = plain(owner, name, value)
    if jnp.issubdtype(x.dtype, jnp.integer) or x.dtype == bool:
        x = x.astype(jax.dtypes.canonicalize_dtype(float))
    if not (jnp.issubdtype(x.dtype, jnp.floating) or (kinds != "floating-point" and jnp.iscomplexobj(x))):
        raise TypeError(f"{owner}: {name} must be an array of {kinds} numbers, found {described(value)}.")
    if not half and x.dtype.itemsize < 4:
        raise TypeError(f"{owner}: {name} must have single or double precision, found {x.dtype}.")
    return jnp.asarray(x)


def one_variable(owner: str, value: Any) -> None:
    """Raise TypeError unless it is or becomes one array, instead of a data set or DataTree with several."""
    if hasattr(value, "data_vars"):
        raise TypeError(
            f"{owner}: expected one variable, found {described(value)}. Pass one by its name, such as "
            'd["posterior"]["x"] of the DataTree d.'
        )


def plain(owner: str, name: str, value: Any) -> np.ndarray:
    """Return a NumPy array of numbers in native byte order; ValueError if entries are masked, TypeError for others."""
    if np.ma.is_masked(value):
        raise ValueError(f"{owner}: {name} has masked entries. Fill them, or leave their rows out.")
    one_variable(owner, value)
    try:
        x = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{owner}: {name} must be an array of numbers, found {described(value)}: {error}.") from error
    if x.dtype.kind not in "biufc" and x.dtype != jnp.bfloat16:
        raise TypeError(
            f"{owner}: {name} must be an array of numbers, found "
            f"{described(value) if not isinstance(value, list) else f'a list of {x.dtype} of shape {x.shape}'}."
        )
    return x.astype(x.dtype.newbyteorder("=")) if x.dtype.byteorder not in "=|" else x


def data_types(value: Any) -> dict[Any, Any]:
    """Return the data types by column of a table of pandas, polars or pyarrow, and by None that of another array."""
    schema: Any = getattr(value, "schema", None)
    for dtypes in (getattr(value, "dtypes", None), schema):  # of pandas, polars
        if hasattr(dtypes, "items"):
            return dict(cast(Any, dtypes).items())
    if hasattr(schema, "types"):
        return dict(zip(schema.names, schema.types, strict=True))
    return {None: getattr(value, "dtype", getattr(value, "type", None))}


def is_time(dtype: Any) -> bool:
    """Whether a data type of NumPy, pandas, polars or pyarrow is one of dates, times or spans of time."""
    return getattr(dtype, "kind", "") in ("m", "M") or str(dtype).lower().startswith(_TIMES)


def numbers(owner: str, name: str, value: Any) -> np.ndarray:
    """Return a NumPy array of real numbers in double precision.

    Raises:
        TypeError: If the value is not an array of real numbers.
        ValueError: If it has masked entries.
    """
    if getattr(value, "dtype", None) == np.dtype(object) or hasattr(value, "to_numpy"):  # columns of several types
        try:
            if any(map(is_time, data_types(value).values())):
                raise TypeError("dates and times are none")  # they would become counts, missing ones the smallest count
            if hasattr(value, "isna"):  # of pandas, whose NA is no number
                value = value.to_numpy(dtype=np.float64, na_value=np.nan)
            value = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"{owner}: {name} must be an array of real numbers: {error}.") from error
    if hasattr(value, "toarray"):  # scipy.sparse
        raise TypeError(f"{owner}: {name} is sparse; pass {name}.toarray().")
    x = plain(owner, name, value)
    if x.dtype.kind not in "biuf" and x.dtype != jnp.bfloat16:
        raise TypeError(f"{owner}: {name} must be an array of real numbers, found {described(value)}.")
    return x.astype(np.float64)


def labels(owner: str, name: str, values: Any) -> np.ndarray:
    """Return labels of rows, such as groups, as an array; raise ValueError if some are missing."""
    found = np.asarray(values)
    is_missing = missing(found)
    if is_missing.any():
        raise ValueError(
            f"{owner}: {int(is_missing.sum())} of {len(found)} {name} are missing, the first in row "
            f"{int(is_missing.argmax())}; drop these rows, or replace missing values by a name."
        )
    return found


def missing(values: np.ndarray) -> np.ndarray:
    """Return for each entry, along one axis, whether it is missing: None, NaN, NaT or pandas' NA."""
    if values.dtype.kind in "biuUS":  # of many millions
        return np.zeros(values.size, bool)
    return np.array([_is_missing(value) for value in values.ravel().tolist()], bool)


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)  # NaN, NaT
    except TypeError:
        return True  # pandas' NA, which has no truth value
    except ValueError:  # of an array in place of a label
        return False


def tree(owner: str, name: str, value: PyTree) -> list[Any]:
    """Return the leaves of a pytree; raise TypeError if JAX cannot flatten it."""
    try:
        return jax.tree.leaves(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{owner}: {name} is not a pytree that JAX can flatten. The keys of a dict must have one type, such as "
            "strings."
        ) from error


def arrays(owner: str, name: str, value: PyTree) -> list[Any]:
    """Return the leaves of a pytree of arrays; raise TypeError for a list that should be an array, a pytree to JAX.

    Such are lists of numbers, and lists of more than two parts with the same arrays, such as one for each example.
    Loaders of other libraries are errors, too.
    """
    if is_loader(value):
        raise TypeError(f"{owner}: {name} must be arrays, found a {type(value).__name__}.")

    def is_list(node: Any) -> bool:
        return (
            isinstance(node, list) and node != [] and all(isinstance(part, bool | int | float | list) for part in node)
        )

    if any(is_list(leaf) for leaf in jax.tree.leaves(value, is_leaf=is_list)):
        raise TypeError(f"{owner}: {name} must be arrays, found a list of numbers. Pass np.asarray of each list.")

    def is_list_of_examples(node: Any) -> bool:
        return len(node) > 2 and len(kinds := {_kind(part) for part in node}) == 1 and None not in kinds

    for leaf in jax.tree.leaves(value, is_leaf=lambda node: isinstance(node, list)):
        if isinstance(leaf, list) and is_list_of_examples(leaf):
            is_tree = not hasattr(leaf[0], "shape")
            parts = f"{type(leaf[0]).__name__}s" if is_tree else f"arrays of shape {tuple(leaf[0].shape)}"
            raise TypeError(
                f"{owner}: {name} must be arrays, found a list of {len(leaf)} {parts}. Join examples by np.stack; for "
                "several arrays with an axis over the examples use a tuple or a dict."
            )
    return tree(owner, name, value)


def _kind(part: PyTree) -> Hashable | None:
    """What is equal for trees of equal arrays; None for a tree that has no array, or something else."""
    leaves, structure = jax.tree.flatten(part)
    if not leaves or not all(hasattr(leaf, "shape") for leaf in leaves):
        return None
    return structure, *((tuple(leaf.shape), str(getattr(leaf, "dtype", None))) for leaf in leaves)


def described(value: Any) -> str:
    """Return a short description of a value: dtype and shape of an array, or the ``repr``, cut if it is long."""
    if isinstance(value, np.ndarray | jax.Array):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    if isinstance(value, int) and abs(value) > 10**20:
        return "a number of more than 20 digits"
    if isinstance(value, np.generic):  # np.int64(0) prints as 0
        value = float(str(value)) if isinstance(value, np.floating) else value.item()
    if value is None or isinstance(value, str | bytes | bool | int | float | complex):
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    return f"a {type(value).__name__}"


def superchains(num_chains: int, num_superchains: Any, caller: str) -> int:
    """Return the number of superchains; raise ValueError unless it divides the number of chains."""
    count = whole(caller, "num_superchains", num_superchains, least=2)
    if num_chains % count != 0:
        raise ValueError(
            f"{caller}: num_superchains must divide the number of chains; found {count} for {num_chains} chains."
        )
    return count


_LIBRARIES = {"geodax", "jax", "jaxlib", "equinox", "jaxtyping", "beartype", "optax", "contextlib", "functools"}


def warn(message: str) -> None:
    """Give a UserWarning that points at the user's line: the innermost one that is not of this or another library."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)
