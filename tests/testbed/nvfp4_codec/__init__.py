"""A program that runs in the engine's interpreter: what compressed-tensors makes of weights, and of our tensors."""
