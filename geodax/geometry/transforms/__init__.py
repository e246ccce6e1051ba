"""Transforms between unconstrained vectors and orthonormal matrices."""

from geodax.geometry.transforms.base import AbstractTransform
from geodax.geometry.transforms.cayley import CayleyChart
from geodax.geometry.transforms.givens import Givens
from geodax.geometry.transforms.householder import Householder
from geodax.geometry.transforms.laws import check_transform
from geodax.geometry.transforms.polar import Polar
from geodax.geometry.transforms.unconstrained import Unconstrained, unconstrain

__all__ = [
    "AbstractTransform",
    "CayleyChart",
    "Givens",
    "Householder",
    "Polar",
    "Unconstrained",
    "check_transform",
    "unconstrain",
]
