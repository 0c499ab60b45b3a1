"""The phases of a validation: one module each, with its cases, findings and summary."""
