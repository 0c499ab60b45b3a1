"""`conform smoke`: a short checklist that separates faults of an adapter from faults of the implementation."""
