"""The commands of the command line: their arguments, and what they print."""
