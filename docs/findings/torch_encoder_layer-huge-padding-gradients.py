"""A padded position of 2^100 changes no output, but in float32 it makes every gradient of a post-norm layer NaN, though
nothing flows from it: the variance of LayerNorm overflows, and its backward pass multiplies 0 by infinity.
(https://github.com/pytorch/pytorch/issues/162489)"""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(1, 4, 8)
padding = torch.tensor([[False, False, False, True]])
for dtype in (torch.float64, torch.float32):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0, dtype=dtype)
    for content in (1.0, 2.0**100):
        given = x.to(dtype).clone()
        given[0, 3] = content * given[0, 3]
        given.requires_grad_()
        output = layer(given, src_key_padding_mask=padding)[0, :3]
        (gradient,) = torch.autograd.grad(output.square().sum(), given)
        print(f"{dtype}, padding times {content:.3g}: output finite {bool(output.isfinite().all())},", end=" ")
        print(f"gradient at valid positions finite {bool(gradient[0, :3].isfinite().all())}")
