"""The ReLU network with unit-vector weights from the command line: options, table, report."""
