"""What a run leaves behind: report.json, and the matrix on the terminal."""
