"""Exact samplers."""
