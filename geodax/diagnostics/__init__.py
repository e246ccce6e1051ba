"""Diagnostics of draws: effective sample sizes, R-hat, aligned matrices, subspaces, and a list of findings."""
