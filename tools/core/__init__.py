"""Selects the cases of the level core."""
