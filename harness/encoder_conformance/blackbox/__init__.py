"""A subject as a black box: inputs for whatever it takes, the noise of its outputs, and how far two are apart."""
