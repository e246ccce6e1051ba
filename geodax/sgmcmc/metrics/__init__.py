"""Metrics for the stochastic-gradient samplers: Identity, RMSProp, Wenzel, Monge, Shampoo."""

from geodax.sgmcmc.metrics.base import AbstractMetric, Curvature, Frozen, Identity
from geodax.sgmcmc.metrics.diagonal import RMSProp, Wenzel
from geodax.sgmcmc.metrics.laws import check_metric
from geodax.sgmcmc.metrics.monge import Monge
from geodax.sgmcmc.metrics.shampoo import Shampoo

__all__ = ["AbstractMetric", "Curvature", "Frozen", "Identity", "Monge", "RMSProp", "Shampoo", "Wenzel", "check_metric"]
