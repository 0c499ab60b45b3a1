"""Symbolic tracing: what each graph value computes from x, element by element."""
