"""The HTML report of a Bayesian PCA, from arrays alone."""

from geodax.app.pca.sections import write_report
from geodax.app.pca.trust import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose", "write_report"]
