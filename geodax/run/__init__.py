"""Running samplers: the loop, draws, checkpoints, diagnostics, reports."""
