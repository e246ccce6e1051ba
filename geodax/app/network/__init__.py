"""Networks and contacts over time on the command line: options, tables, report."""
