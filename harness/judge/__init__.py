"""The judge: compares an observation with its expectation and gives a verdict."""
