"""Judges one implementation over released versions of its framework, each installed in an environment of its own."""
