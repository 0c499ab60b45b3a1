"""Bases that adapters are built on, and no implementations themselves."""
