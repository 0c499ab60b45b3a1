"""Grades the suite: which case detects which deviation."""
