"""What the integers of a file cost: how far its outputs are off, by what, and what is better left in float."""
