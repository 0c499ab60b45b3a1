"""With a reshape and no transpose a head is a run of positions, all of their features: without a mask position 0 does
not see position 5, and padding that position 0 may not see takes part under another position's mask."""

import torch
from torch.nn import functional as F


def attend(x: torch.Tensor, by_reshape: bool) -> torch.Tensor:
    N, S, E, H = *x.shape, 2
    heads = x.reshape(N, H, S, E // H) if by_reshape else x.reshape(N, S, H, E // H).transpose(1, 2)
    context = F.scaled_dot_product_attention(heads, heads, heads)
    return (context if by_reshape else context.transpose(1, 2)).reshape(N, S, E)


torch.manual_seed(0)
x = torch.randn(1, 6, 8)
other = x.clone()
other[0, 5] += 1.0
for by_reshape in (False, True):
    changed = (attend(x, by_reshape) - attend(other, by_reshape)).abs().amax(dim=-1)[0]
    print("by reshape:" if by_reshape else "by transpose:", "position 5 changes position 0 by", changed[0].item())
