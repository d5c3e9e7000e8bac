"""A program that runs in the engine's interpreter: what compressed-tensors and transformers make of checkpoints."""
