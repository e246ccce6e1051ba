"""Hypothesis strategies of odd arguments: numbers, names, arrays of every kind and layout, trees, keys, functions."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

NOT_NUMBERS = [
    None,
    "",
    "three",
    b"\0",
    [],
    {},
    (),
    object,
    lambda x: x,
    1j,
    np.datetime64("2026-01-01"),
    "é\0<script>",
]

numbers = st.sampled_from(
    [
        -1,
        0,
        1,
        2,
        -1.0,
        0.0,
        0.5,
        1.5,
        1e300,
        -1e300,
        1e-300,
        float("nan"),
        float("inf"),
        -float("inf"),
        True,
        False,
        np.float16(0.5),
        np.float32(2),
        np.int8(3),
        np.array(0.5),
        np.array([0.5]),
        "0.5",
        10**400,
        -(10**400),
        *NOT_NUMBERS,
    ]
)
"""In place of a number."""

# sizes between these and 2^62 would be worked on until the memory is full, as they were asked to be
counts = st.sampled_from(
    [
        -(2**62),
        -1,
        0,
        1,
        2,
        3,
        5,
        2**62,
        2**63,
        2**100,
        1.0,
        1.5,
        float("nan"),
        float("inf"),
        1e300,
        True,
        False,
        np.int64(2),
        np.uint8(3),
        np.float32(2),
        np.array(2),
        np.array([2]),
        "2",
        "many",
        *NOT_NUMBERS,
    ]
)
"""In place of a whole number."""

choices = st.sampled_from(
    [
        "",
        "none",
        "NONE",
        "cayley ",
        "../../etc/passwd",
        "<script>",
        "é",
        "x" * 10000,
        0,
        -1,
        1.5,
        float("nan"),
        None,
        True,
        [],
        {},
        (),
        ["cayley"],
        object,
        np.array(["a"]),
        b"cayley",
        {"a": 1},
    ]
)
"""In place of one of some names."""

flags = st.sampled_from([0, 1, "yes", None, [], np.True_, 2.0])
"""In place of a bool: whatever can be true or false."""

keys = st.sampled_from(
    [None, 0, 1.5, "key", np.uint32(3), np.zeros(2), np.zeros((2, 2), np.uint32), (), lambda: 0, jax.random.PRNGKey(0)]
)
"""In place of a random key; the last one is a key of the old form."""

shapes_of_draws = st.sampled_from([-1, (-1,), (2, -3), 1.5, "two", None, (2, "x"), [2], {}, True, (0,), 0, np.int64(2)])
"""In place of a shape."""

functions = st.sampled_from(
    [
        None,
        0,
        "f",
        [],
        {},
        lambda *a, **k: None,
        lambda *a, **k: "text",
        lambda *a, **k: jnp.zeros(3),
        lambda *a, **k: jnp.array(1),
        lambda *a, **k: jnp.array(1j),
        lambda *a, **k: {},
    ]
)
"""In place of a function of any arguments."""

SHAPES = [(), (0,), (1,), (3,), (8,), (0, 3), (3, 0), (1, 1), (2, 3), (3, 2), (4, 4), (2, 3, 2), (1, 1, 1, 1)]
DTYPES = ["float16", "float32", "float64", "int8", "int64", "uint8", "bool", "complex64", "complex128"]
DTYPES += ["object", "U3", "S3", "M8[s]", "V8", "bfloat16"]
CONTENTS = ["noise", "zeros", "ones", "huge", "tiny", "nan", "inf", "-inf", "orthonormal"]
LAYOUTS = ["plain", "fortran", "strided", "reversed", "read-only", "masked", "list", "jax", "big-endian", "subclass"]


@st.composite
def arrays(draw, shapes=tuple(SHAPES)):
    """An array of some type, shape, contents and layout, or something that is none."""
    if draw(st.integers(0, 9)) == 0:
        odd = [
            [[1.0, 2.0], [3.0]],
            "abc",
            {1, 2},
            (i for i in range(3)),
            {"a": [1]},
            [None, 1.0],
            ["a", "b"],
            [],
            object(),
        ]
        return draw(st.sampled_from([*odd, *NOT_NUMBERS]))
    shape, dtype = draw(st.sampled_from(shapes)), draw(st.sampled_from(DTYPES))
    return laid_out(made(shape, dtype, draw(st.sampled_from(CONTENTS))), draw(st.sampled_from(LAYOUTS)))


def made(shape, dtype, content):
    """An array of NumPy, or of JAX for bfloat16."""
    values = np.random.default_rng(0).standard_normal(shape)
    if content == "orthonormal" and len(shape) >= 2 and shape[-2] >= shape[-1] > 0:
        values = np.linalg.qr(values)[0]
    fills = {"zeros": 0.0, "ones": 1.0, "huge": 1e300, "tiny": 1e-310}
    if content in fills:
        values = np.full(shape, fills[content])
    elif content in ("nan", "inf", "-inf") and values.size:
        values = np.array(values)
        values[(0,) * values.ndim] = float(content)
    with np.errstate(all="ignore"):
        if dtype == "bfloat16":
            return jnp.asarray(values, jnp.bfloat16)
        if dtype in ("M8[s]", "V8"):
            return np.zeros(shape, dtype)
        return values.astype(dtype)


def laid_out(array, layout):
    """The same array in another layout."""
    if not isinstance(array, np.ndarray):
        return array
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "strided" and array.ndim:
        return np.repeat(array, 2, axis=0)[::2]
    if layout == "reversed" and array.ndim:
        return array[::-1].copy()[::-1]
    if layout == "read-only":
        array = array.copy()
        array.setflags(write=False)
    if layout == "masked" and array.dtype.kind in "fiuc":
        return np.ma.masked_array(array, mask=np.zeros(array.shape, bool))
    if layout == "list":
        return array.tolist()
    if layout == "jax" and array.dtype.kind in "fiubc":
        return jnp.asarray(array)
    if layout == "big-endian" and array.dtype.kind in "fiuc":
        return array.astype(array.dtype.newbyteorder(">"))
    if layout == "subclass":
        return array.view(np.recarray) if array.dtype.kind != "O" else array
    return array


@st.composite
def trees(draw):
    """A pytree of a wrong kind, or of wrong leaves."""
    leaf = draw(arrays())
    other = jnp.ones((3, 2))
    return draw(
        st.sampled_from(
            [
                leaf,
                {},
                [],
                (),
                None,
                {"x": leaf},
                {"x": other, "y": leaf},
                {"x": {"x": leaf}},
                [leaf, other],
                (other,),
                {1: other, "a": other},
                {"a/b": other},
                {"": other},
                {"é\x00": other},
                {"x": None},
                {"x": "text"},
                {"x": jnp.zeros((0, 2))},
                {"chain": other},
                {"x": jnp.ones((3, 2), int)},
            ]
        )
    )
