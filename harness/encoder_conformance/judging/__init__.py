"""Judges a subject: the one loop from its tasks to judged answers and to what a diagnosis needs of them."""
