"""What the benchmark of probabilistic PCA is made of."""
