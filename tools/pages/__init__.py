"""Generators of files: schemas, example frames, and pages of docs/."""
