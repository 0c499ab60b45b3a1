"""Attention has no biases and LayerNorm no shift: what a layer with both has learnt finds no place in it."""

import torch
from x_transformers import Encoder

x_transformers = Encoder(dim=8, depth=1, heads=2, attn_dim_head=4)
for layer in (x_transformers, torch.nn.TransformerEncoderLayer(8, 2, 32)):
    print(type(layer).__module__.partition(".")[0], [name for name in layer.state_dict() if "ff" not in name])
