"""What writes generated files: schemas, example frames, and pages of docs/."""
