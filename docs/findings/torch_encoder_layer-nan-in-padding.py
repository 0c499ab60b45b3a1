"""NaN at a padded position reaches the positions that may not attend to it: its value is weighed by 0, and 0 · NaN is
NaN. 2^100 there changes nothing. (https://github.com/pytorch/pytorch/issues/101967)"""

import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
padding = torch.tensor([[False, False, False, True]])
x = torch.randn(1, 4, 8)
for fast in (False, True):
    torch.backends.mha.set_fastpath_enabled(fast)
    for content in (1.0, 2.0**100, float("nan")):
        x[0, 3] = content
        with torch.no_grad():
            output = layer(x, src_key_padding_mask=padding)
        print("fast path" if fast else "slow path", f"{content:8.3g}:", output[0, 0, :3].tolist())
