"""A query with no key: attention gives it zeros, and the residual sum leaves x as it was."""

import torch
from x_transformers import Encoder

x = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0))
mask = torch.tensor([[True, True, True, False], [False, False, False, False]])  # the second item is padding alone
for flash in (False, True):
    torch.manual_seed(0)
    encoder = Encoder(dim=8, depth=1, heads=2, attn_dim_head=4, attn_flash=flash).eval()
    given = []
    attention = encoder.layers[0][1]
    attention.register_forward_hook(lambda module, args, output, given=given: given.append(output[0]))
    with torch.no_grad():
        encoder(x, mask=mask)
    print("flash" if flash else "plain", "attention gives position 0 of the second item", given[0][1, 0, :3].tolist())
