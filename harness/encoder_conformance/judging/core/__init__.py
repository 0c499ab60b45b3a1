"""The level `core`, the smallest set of cases that detects every deviation, and what a run's checks exclude."""
