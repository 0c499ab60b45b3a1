"""The specification as data: layers, situations, and what follows from them (parameters, stages, cases)."""
