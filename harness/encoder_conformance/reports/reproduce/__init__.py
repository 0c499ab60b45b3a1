"""`conform reproduce`: a failing case as a script that needs the framework and NumPy, and nothing of this harness."""
