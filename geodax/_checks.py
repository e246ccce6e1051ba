"""Checks of what users hand over, before anything is traced: what was expected, what was found, what to do.

Each function returns the argument in the form in which the library goes on with it. `owner` is the function or class
that the message begins with, `name` its argument. What is of the wrong kind is a TypeError, what is out of its range a
ValueError.
"""

import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from geodax._types import Array, PRNGKey, PyTree

LARGEST = 2**31 - 1
"""No axis of an array is longer: its places are counted with 32 bits."""


def whole(owner: str, name: str, value: Any, *, least: int = 1, most: int = LARGEST) -> int:
    """A whole number within bounds.

    Args:
        owner: Whose argument it is.
        name: The argument.
        value: What was handed over; NumPy's whole numbers are welcome, bools and floats are not.
        least: The smallest that is allowed.
        most: The largest that is allowed.

    Returns:
        A Python int.

    Raises:
        TypeError: If it is no whole number.
        ValueError: If it is out of bounds.
    """
    try:
        number = None if isinstance(value, bool | np.bool_ | Tracer) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{owner}: {name} must be a whole number, found {described(value)}.")
    if not least <= number <= most:
        bounds = f"at least {least}" if number < least else f"at most {most:,}"
        raise ValueError(f"{owner}: {name} must be {bounds}, found {described(number)}.")
    return number


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
    """A finite number within bounds.

    Args:
        owner: Whose argument it is.
        name: The argument.
        value: What was handed over: a number, or an array with one entry and no axis.
        least: The smallest that is allowed.
        most: The largest that is allowed.
        above: All that is allowed is larger.
        below: All that is allowed is smaller.

    Returns:
        A Python float.

    Raises:
        TypeError: If it is no number.
        ValueError: If it is not finite or out of bounds.
    """
    is_number = isinstance(value, int | float | np.number | np.ndarray | jax.Array) and not isinstance(value, bool)
    if is_number and (getattr(value, "shape", ()) != () or np.asarray(value).dtype.kind not in "iufO"):
        is_number = False
    if not is_number:
        raise TypeError(f"{owner}: {name} must be a number, found {described(value)}.")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not (math.isfinite(found) and least <= found <= most and above < found < below):
        if above == 0 and (least, most, below) == (-math.inf, math.inf, math.inf):
            raise ValueError(f"{owner}: {name} must be a positive number, and finite, found {described(value)}.")
        words = [f"at least {least:g}"] * (least > -math.inf) + [f"above {above:g}"] * (above > -math.inf)
        words += [f"at most {most:g}"] * (most < math.inf) + [f"below {below:g}"] * (below < math.inf)
        raise ValueError(f"{owner}: {name} must be {' and '.join([*words, 'finite'])}, found {described(value)}.")
    return found


def chosen(owner: str, name: str, value: Any, known: Sequence[str]) -> str:
    """One of some names.

    Args:
        owner: Whose argument it is.
        name: The argument.
        value: What was handed over.
        known: The names.

    Returns:
        The name.

    Raises:
        ValueError: If it is none of them.
    """
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{owner}: {name} must be one of {list(known)}, found {described(value)}.")
    return value


def random_key(owner: str, value: Any) -> PRNGKey:
    """A JAX random key, of the new form or the old one.

    Args:
        owner: Whose argument it is.
        value: What was handed over.

    Returns:
        The key.

    Raises:
        TypeError: If it is none, or several.
    """
    dtype = getattr(value, "dtype", None)
    is_new = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key) and value.shape == ()
    is_old = isinstance(value, jax.Array | np.ndarray) and dtype == np.uint32 and value.shape in ((2,), (4,))
    if not (is_new or is_old):
        raise TypeError(
            f"{owner}: expected one random key, found {described(value)}; make one by jax.random.key(seed), several of "
            "it by jax.random.split."
        )
    key: Any = value
    return key


def shape(owner: str, value: Any) -> tuple[int, ...]:
    """The shape of a stack: a whole number, or a sequence of them.

    Args:
        owner: Whose argument it is.
        value: What was handed over.

    Returns:
        A tuple of sizes, zero included.

    Raises:
        TypeError: If it is none.
        ValueError: For sizes that are negative.
    """
    sizes = value if isinstance(value, tuple | list) else (value,)
    return tuple(whole(owner, "shape", size, least=0) for size in sizes)


def real_dtype(owner: str, value: Any) -> Any:
    """A floating-point type.

    Args:
        owner: Whose argument it is.
        value: What was handed over.

    Returns:
        The type.

    Raises:
        TypeError: If it is none.
    """
    try:
        is_real = value is not None and jnp.issubdtype(jnp.dtype(value), jnp.floating)
    except (TypeError, ValueError):
        is_real = False
    if not is_real:
        raise TypeError(f"{owner}: dtype must be a floating-point type such as jnp.float32, found {described(value)}.")
    return value


def vector(owner: str, value: Any, size: int) -> Array:
    """One vector of a given size, for a layer.

    Args:
        owner: Whose argument it is.
        value: What was handed over.
        size: Its entries.

    Returns:
        The vector.

    Raises:
        TypeError: If it is no array of numbers.
        ValueError: If it has another shape.
    """
    x = array(owner, "x", value, kinds="floating-point or complex")
    if x.shape != (size,):
        raise ValueError(
            f"{owner}: expected one vector of {size} numbers, found shape {x.shape}; use jax.vmap for many."
        )
    return x


def image(owner: str, value: Any, channels: int) -> Array:
    """One image with a given number of channels, for a layer.

    Args:
        owner: Whose argument it is.
        value: What was handed over; whole numbers become floats.
        channels: Its channels.

    Returns:
        The image, channels x height x width.

    Raises:
        TypeError: If it is no array of numbers.
        ValueError: If it has another shape.
    """
    x = array(owner, "x", value)
    if x.ndim != 3 or x.shape[0] != channels:
        raise ValueError(
            f"{owner}: expected one image of shape ({channels}, height, width), found shape {x.shape}; use jax.vmap "
            "for many."
        )
    return x


def array(owner: str, name: str, value: Any, *, kinds: str = "floating-point", half: bool = True) -> Array:
    """An array of JAX from anything that is one.

    Args:
        owner: Whose argument it is.
        name: The argument.
        value: What was handed over; whole numbers and bools become floats.
        kinds: ``"floating-point"``, or ``"floating-point or complex"``.
        half: Whether half precision will do; the linear algebra of LAPACK has none.

    Returns:
        The array.

    Raises:
        TypeError: If it is no array of numbers, or one in half precision where that will not do.
        ValueError: If entries of it are masked.
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
        raise TypeError(f"{owner}: {name} must be in single or double precision, found {x.dtype}.")
    return jnp.asarray(x)


def plain(owner: str, name: str, value: Any) -> np.ndarray:
    """An array of NumPy from anything that holds numbers.

    Args:
        owner: Whose argument it is.
        name: The argument.
        value: What was handed over.

    Returns:
        The array, in this machine's byte order.

    Raises:
        TypeError: If it holds something else than numbers.
        ValueError: If entries of it are masked.
    """
    if np.ma.is_masked(value):
        raise ValueError(f"{owner}: {name} has masked entries; fill them, or leave their rows out.")
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


def numbers(owner: str, name: str, value: Any) -> np.ndarray:
    """An array of real numbers in double precision.

    Args:
        owner: Whose argument it is.
        name: The argument.
        value: What was handed over.

    Returns:
        A NumPy array.

    Raises:
        TypeError: If it is no array of real numbers.
        ValueError: If entries of it are masked.
    """
    if getattr(value, "dtype", None) == np.dtype(object) or hasattr(value, "to_numpy"):  # columns of several types
        try:
            value = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"{owner}: {name} must be an array of real numbers: {error}.") from error
    x = plain(owner, name, value)
    if x.dtype.kind not in "biuf" and x.dtype != jnp.bfloat16:
        raise TypeError(f"{owner}: {name} must be an array of real numbers, found {described(value)}.")
    return x.astype(np.float64)


def tree(owner: str, name: str, value: PyTree) -> list[Any]:
    """The leaves of a pytree, if it can be taken apart at all.

    Args:
        owner: Whose argument it is.
        name: The argument.
        value: What was handed over.

    Returns:
        Its leaves.

    Raises:
        TypeError: If the keys of a dict cannot be put in order.
    """
    try:
        return jax.tree.leaves(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{owner}: {name} is no pytree that JAX can take apart: the keys of a dict must be of one kind, such as "
            "strings."
        ) from error


def described(value: Any) -> str:
    """What was found, in a few words.

    Args:
        value: Anything.

    Returns:
        Type and shape of an array; a value as Python writes it, cut where it is long.
    """
    if isinstance(value, np.ndarray | jax.Array):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    if isinstance(value, int) and abs(value) > 10**20:
        return "a number of more than 20 digits"
    if value is None or isinstance(value, str | bytes | bool | int | float | complex | np.generic):
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    return f"a {type(value).__name__}"


def superchains(num_chains: int, num_superchains: Any, caller: str) -> int:
    """The number of superchains; ValueError unless it divides the number of chains.

    Args:
        num_chains: Number of chains.
        num_superchains: Number of superchains.
        caller: The function that asks, for the message.
    """
    count = whole(caller, "num_superchains", num_superchains, least=2)
    if num_chains % count != 0:
        raise ValueError(
            f"{caller}: num_superchains must divide the number of chains; found {count} for {num_chains} chains."
        )
    return count
