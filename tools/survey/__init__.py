"""Judges every implementation in every configuration, stores the results as rows, and writes the pages from them."""
