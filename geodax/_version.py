"""The version, which the package's metadata takes from here: a checkout that is not installed has one too."""

__version__ = "0.1.0"
