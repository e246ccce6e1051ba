"""The commands of the command line: their arguments and their output."""
