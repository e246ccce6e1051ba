"""Low-rank factorization of ratings on the command line: options, tables, report."""
