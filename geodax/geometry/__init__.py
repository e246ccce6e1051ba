"""Manifolds, flows and their linear algebra; nothing here knows of samplers."""
