"""Sphinx configuration; `make docs` builds with warnings as errors."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # where the extensions `executed` and `pictured` are

project = "geodax"
author = "The geodax developers"
copyright = author
release = installed_version("geodax")
version = ".".join(release.split(".")[:2])

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "executed",
    "pictured",
]
executed_pages = [
    "adapters",
    "cca",
    "data",
    "first-steps-methods",
    "first-steps-networks",
    "likelihoods",
    "model-comparison",
    "networks",
    "numpyro",
    "unit-networks",
]
exclude_patterns = ["_build", "gallery/*"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Types stay as written (`Float[Array, "n p"]`). Names of other projects are not looked up, so none can miss.
nitpicky = False
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autosummary_generate = True
maximum_signature_line_length = 88
# A documented attribute is also a dataclass field: as an ivar it is described once.
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"geodax {release}"


def shorten_signature(app, what, name, obj, options, signature, return_annotation):
    """Write jaxtyping's annotations as they stand in the source: `Float[Array, 'n p']`."""
    return tuple(
        text and text.replace("jaxlib._jax.Array", "Array").replace("numpy.ndarray", "np.ndarray")
        for text in (signature, return_annotation)
    )


def escape_types(app, what, name, obj, options, lines):
    """Shapes such as `*draws n p` in the types of attributes are no emphasis."""
    lines[:] = [line.replace("*", r"\*") if line.startswith(":vartype") else line for line in lines]


def skip_metadata_routing(app, what, name, obj, skip, options):
    """Leave out what scikit-learn adds to estimators; its texts refer to a glossary that is not here."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app):
    """Connect what this project adds to autodoc."""
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-process-docstring", escape_types)
    app.connect("autodoc-skip-member", skip_metadata_routing)
