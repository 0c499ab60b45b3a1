"""The judge: an observation and what was expected go in, a verdict comes out."""
