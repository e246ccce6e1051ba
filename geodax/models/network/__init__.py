"""The hidden Markov model of a network of contacts."""
