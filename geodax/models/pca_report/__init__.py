"""The HTML report of a Bayesian PCA, from arrays alone."""

from geodax.models.pca_report.sections import write_report
from geodax.models.pca_report.trust import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose", "write_report"]
