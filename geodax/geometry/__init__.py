"""Manifolds, flows and their linear algebra, independent of samplers."""
