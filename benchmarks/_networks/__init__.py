"""The parts of benchmarks/stochastic_gradients.py: one network on random images, in JAX and in PyTorch."""
