"""The output of a run: report.json, and the matrix on the terminal."""
