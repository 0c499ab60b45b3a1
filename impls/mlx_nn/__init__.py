"""The adapter of MLX's own encoder layer."""
