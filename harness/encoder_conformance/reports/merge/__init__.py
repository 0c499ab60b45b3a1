"""A plan in several runs, on several machines or at several times, and one report of them."""
