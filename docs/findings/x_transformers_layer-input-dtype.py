"""A pre-norm encoder of float64 takes x of float32, and gives float64; the post-norm one refuses it."""

import torch
from x_transformers import Encoder

for pre_norm in (True, False):
    encoder = Encoder(dim=8, depth=1, heads=2, attn_dim_head=4, pre_norm=pre_norm).double().eval()
    try:
        said = encoder(torch.randn(1, 4, 8)).dtype
    except RuntimeError as error:
        said = f"RuntimeError: {error}"
    print("pre-norm" if pre_norm else "post-norm", said)
