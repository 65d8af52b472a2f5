"""Training: losses, recipes, the loop and its checkpoints."""
