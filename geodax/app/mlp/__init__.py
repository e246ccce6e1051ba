"""Classifiers and regressors on the command line: options, table, report."""
