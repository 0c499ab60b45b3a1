"""The phases of a validation: each an object that says what it asks the runtimes, and assesses the evidence."""
