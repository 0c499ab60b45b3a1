"""The level `core`: the smallest set of cases that sees every deviation, found by measurement, and what a run shows."""
