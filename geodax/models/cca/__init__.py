"""Hierarchical canonical correlation analysis of grouped data of two views."""
