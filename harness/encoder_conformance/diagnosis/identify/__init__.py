"""Identifies what a wrong step computes, from its operands and its results: an equation, and not a name from a list."""
