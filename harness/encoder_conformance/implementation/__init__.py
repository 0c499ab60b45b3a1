"""Implementations: their manifests, and the interpreters and commands that start them."""
