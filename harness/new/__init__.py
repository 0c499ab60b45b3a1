"""`conform new`: a folder for a new implementation, complete but for a few blanks."""
