"""Posterior predictions: ensembles, their scores, conformal sets."""
