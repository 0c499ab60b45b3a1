"""Rows of tables that are kept: what an implementation, as it is told to run, gave when it was last judged."""
