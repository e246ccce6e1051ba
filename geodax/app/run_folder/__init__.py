"""Run folders: what is in them, and what can be done with them."""
