"""The eigenmodel of a symmetric network."""
