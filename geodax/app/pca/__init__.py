"""The HTML report of Bayesian PCA, made from arrays only."""

from geodax._lazy import names_from

__getattr__ = names_from(__name__, {"diagnosis": ("Diagnosis", "diagnose"), "sections": ("write_report",)})
