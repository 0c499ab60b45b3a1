"""Properties that need no golden: a case is asked in two ways that may not differ, and the answers are compared."""
