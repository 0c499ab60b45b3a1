"""Judges training: dropout, measured on the outputs of probe layers, and initialisation (clauses A-*)."""
