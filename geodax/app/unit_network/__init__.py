"""The ReLU network with unit-vector weights on the command line: options, tables, report."""
