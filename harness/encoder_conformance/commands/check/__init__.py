"""Judges a bare module: what it is, as what it is judged, and whether it does what that does."""
