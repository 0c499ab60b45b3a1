"""`conform smoke`: a short checklist that tells a broken adapter from a wrong implementation."""
