"""Inputs and outputs: which tensor is x, which are masks, what each mask value means."""
