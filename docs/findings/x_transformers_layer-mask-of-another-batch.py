"""A mask of two items is taken for a batch of one: the output has two items. With flash attention it is an error."""

import torch
from x_transformers import Encoder

x, mask = torch.randn(1, 4, 8), torch.tensor([[True, True, True, False], [True, True, False, False]])
for flash in (False, True):
    encoder = Encoder(dim=8, depth=1, heads=2, attn_dim_head=4, attn_flash=flash).eval()
    try:
        print("flash" if flash else "plain", tuple(encoder(x, mask=mask).shape))
    except RuntimeError as error:
        print("flash" if flash else "plain", "RuntimeError:", error)
