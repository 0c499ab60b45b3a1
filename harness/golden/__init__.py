"""Goldens: what each case should give and how noisy it is, frozen in `specs/golden/`."""
