"""A file of integers: how it is quantised, what its rounding does, and what of it is better left in float."""
