"""encoder-conformance: the reference answer to "does my Transformer encoder layer do what it should?"."""

__version__ = "0.1.0"
