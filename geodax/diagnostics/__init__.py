"""What draws say: effective sample sizes, R-hat, aligned matrices, subspaces, and findings in words."""
