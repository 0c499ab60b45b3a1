"""In bfloat16 or float16 a mask of padding is an error: with it, what attention gives has become float32."""

import torch
from x_transformers import Encoder

mask = torch.tensor([[True, True, True, False]])
for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
    encoder = Encoder(dim=8, depth=1, heads=2, attn_dim_head=4).to(dtype).eval()
    for given in (None, mask):
        try:
            said = encoder(torch.randn(1, 4, 8, dtype=dtype), mask=given).dtype
        except RuntimeError as error:
            said = f"RuntimeError: {error}"
        print(dtype, "no mask:" if given is None else "mask:   ", said)
