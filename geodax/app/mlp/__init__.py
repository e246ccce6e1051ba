"""Classifiers and regressors from the command line: options, table, report."""
