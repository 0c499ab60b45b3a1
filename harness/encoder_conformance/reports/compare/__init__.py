"""Puts two runs side by side: what changed, what got worse, and from which version on."""
