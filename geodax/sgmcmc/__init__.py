"""Stochastic-gradient samplers."""
