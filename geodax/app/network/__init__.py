"""Networks and contacts over time from the command line: options, tables, report."""
