"""The HTML report of Bayesian PCA, made from arrays only."""

from geodax.app.pca.sections import write_report
from geodax.app.pca.trust import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose", "write_report"]
