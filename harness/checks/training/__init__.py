"""Training judged: dropout read off the outputs of layers that are made for it, and layers as they are made (A-*)."""
