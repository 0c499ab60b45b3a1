"""Compares a file with its source: a module, a checkpoint or another file. Names, values, and answers to one input."""
