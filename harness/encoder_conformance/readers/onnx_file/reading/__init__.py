"""Makes of a path a model that is safe to work on: loading, and the checks that need no execution."""
