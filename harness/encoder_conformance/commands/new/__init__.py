"""`conform new`: makes the folder of a new implementation, complete but for a few blanks."""
