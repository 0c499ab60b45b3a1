"""Metamorphic tests, which need no golden: a case and its follow-up cases must give the same output."""
