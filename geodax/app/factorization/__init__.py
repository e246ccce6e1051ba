"""Low-rank factorization of ratings from the command line: options, table, report."""
