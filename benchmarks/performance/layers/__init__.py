"""A layer's time, ours against what its framework brings: one process a framework, contenders in turns."""
