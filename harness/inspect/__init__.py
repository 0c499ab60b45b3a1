"""For people who look: the shapes, the memory and the time of a layer, stage by stage, as it really is."""
