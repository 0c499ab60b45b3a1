"""The specification as data: layers, situations, and the parameters, stages and cases derived from them."""
