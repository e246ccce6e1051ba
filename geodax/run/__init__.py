"""Running samplers and variational fits: the loop, draws, checkpoints, devices."""
