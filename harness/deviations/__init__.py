"""Deviations at work: they grade the suite, explain failures, and say what is known of an implementation."""
