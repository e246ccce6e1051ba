"""Canonical correlation analysis on the command line: options, tables, report."""
