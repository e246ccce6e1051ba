"""Low-rank factorization of a partly observed matrix."""
