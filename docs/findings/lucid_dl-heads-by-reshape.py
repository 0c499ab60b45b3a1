"""Heads are split by reshape(N, H, S, d) with no transpose, so that a head is a run of positions: with no mask at all,
what stands at position 3 of 4 changes nothing of what attention gives at position 0."""

import lucid
import numpy as np
from lucid import nn

lucid.random.seed(0)
attention = nn.MultiHeadAttention(8, 2)
x = np.random.default_rng(0).normal(size=(1, 4, 8)).astype(np.float32)
for added in (0.0, 1.0, 100.0):
    x[0, 3] += added
    tensor = lucid.tensor(x)
    print("position 0:", attention(tensor, tensor, tensor).numpy()[0, 0, :4])
