"""A mask of numbers, ALiBi's say, is added to the scores on the slow path; the fast one takes what is not 0 for true,
and so ignores it: here each position attends to itself alone. (https://github.com/pytorch/pytorch/issues/107084)"""

import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
x = torch.randn(1, 5, 8)
at = torch.arange(5)
bias = -0.1 * (at[:, None] - at[None]).abs().float()
itself = ~torch.eye(5, dtype=torch.bool)
for fast in (False, True):
    torch.backends.mha.set_fastpath_enabled(fast)
    with torch.no_grad():
        biased, unbiased, alone = (layer(x, src_mask=mask) for mask in (bias, None, itself))
    print("fast path" if fast else "slow path")
    print("  from the layer without a bias:           ", (biased - unbiased).abs().max().item())
    print("  from positions that see themselves alone:", (biased - alone).abs().max().item())
