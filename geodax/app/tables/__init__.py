"""Reads users' tables into named numeric columns, with pandas."""
