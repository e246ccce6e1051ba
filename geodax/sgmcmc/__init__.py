"""Stochastic-gradient samplers."""

from geodax._lazy import names_from

__getattr__ = names_from(__name__, {})
