"""The checks that are more than one comparison with a golden: refusals, invariants, training, declared deviations."""
