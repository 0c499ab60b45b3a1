"""Dropout of the attention weights stays on after eval(): three calls, three outputs."""

import lucid
import numpy as np
from lucid import nn

layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5)
layer.eval()
x = lucid.tensor(np.random.default_rng(0).normal(size=(1, 4, 8)).astype(np.float32))
for _ in range(3):
    print(layer(x).numpy()[0, 0, :3])
