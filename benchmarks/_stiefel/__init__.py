"""The parts of benchmarks/stiefel.py: targets with their moments, our samplers, and the peers."""
