"""Run folders: their contents, and the operations on them."""
