"""What adapters are built on: bases that are no implementations themselves."""
