"""Pattern matching: the encoder layer of a traced graph, its parameters and stages, verified by the oracle."""
