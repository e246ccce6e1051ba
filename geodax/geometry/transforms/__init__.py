"""Transforms between unconstrained vectors and orthonormal matrices."""

from geodax.geometry.transforms.base import AbstractTransform
from geodax.geometry.transforms.polar import Polar
from geodax.geometry.transforms.unconstrained import Unconstrained, unconstrain

__all__ = ["AbstractTransform", "Polar", "Unconstrained", "unconstrain"]
