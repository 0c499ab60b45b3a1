"""In float64 the softmax is computed in float32, unless attention is flash attention."""

import torch
from x_transformers import Encoder

x = torch.randn(1, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
outputs = []
for flash in (False, True):
    torch.manual_seed(0)
    encoder = Encoder(dim=8, depth=1, heads=2, attn_dim_head=4, attn_flash=flash).double().eval()
    with torch.no_grad():
        outputs.append(encoder(x))
print("float64, plain and flash attention are apart by", (outputs[0] - outputs[1]).abs().max().item())
