"""Goldens: each case's expected tensors and their condition, frozen in `specs/golden/`."""
