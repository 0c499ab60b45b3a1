"""A query with no key to attend to is 0 in attention on the slow path, and NaN on the fast one, and where attention is
asked for its weights. (https://github.com/pytorch/pytorch/pull/190486, https://github.com/pytorch/pytorch/issues/160064)"""

import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
x = torch.randn(1, 4, 8)
blind = torch.zeros(4, 4, dtype=torch.bool)
blind[2] = True  # true to ignore: position 2 may attend to nothing
for fast in (False, True):
    torch.backends.mha.set_fastpath_enabled(fast)
    with torch.no_grad():
        output = layer(x, src_mask=blind)
    print("fast path" if fast else "slow path", "position 2:", output[0, 2, :3].tolist())
torch.backends.mha.set_fastpath_enabled(False)
for asked in (False, True):
    output, weights = layer.self_attn(x, x, x, attn_mask=blind, need_weights=asked)
    print(f"need_weights={asked}", "position 2:", output[0, 2, :3].tolist())
