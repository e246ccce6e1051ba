"""A ReLU network whose hidden units have unit vectors for weights."""
