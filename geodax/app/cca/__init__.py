"""Canonical correlation analysis from the command line: options, table, report."""
