"""gelu_fast of transformers, ViViT's activation, has the square root of 2/π to ten digits: in float64 it is far from
gelu_pytorch_tanh, the same function."""

import torch
from transformers.activations import ACT2FN

x = torch.linspace(-4, 4, 1001, dtype=torch.float64)
apart = (ACT2FN["gelu_fast"](x) - ACT2FN["gelu_pytorch_tanh"](x)).abs().max()
print(f"apart by {apart:.1e}, {apart / torch.finfo(x.dtype).eps:.0f} times the precision of float64")
