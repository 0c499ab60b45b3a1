"""Checks beyond one comparison with a golden: refusals, invariants, training, declared deviations."""
