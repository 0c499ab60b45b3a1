"""Published encoders, layer by layer: what agrees with the specification, and by how much. Writes docs/zoo.md."""
