"""A ReLU network whose hidden units have unit weight vectors."""
