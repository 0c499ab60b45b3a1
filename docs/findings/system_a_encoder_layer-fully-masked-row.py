"""A query whose every score is minus infinity is NaN, and NaN are the gradients by its keys' values even where nothing
is asked of its output, for 0 · NaN is NaN; with one key left nothing is. (https://github.com/pytorch/pytorch/issues/41508)"""

import torch
from torch import nn

torch.manual_seed(0)
query, key, value = (nn.Linear(4, 4) for _ in range(3))
x = torch.randn(1, 3, 4)
for keys_left in (1, 0):
    allowed = torch.ones(1, 3, 3, dtype=torch.bool)
    allowed[0, 2, keys_left:] = False  # what the last query may attend to
    scores = (query(x) @ key(x).transpose(-2, -1) / 2).masked_fill(~allowed, -torch.inf)
    output = scores.softmax(dim=-1) @ value(x)
    output[:, :2].sum().backward()  # of the other queries alone
    print(f"{keys_left} keys left:", output[0, 2].tolist(), "gradient:", value.weight.grad[0].tolist())
    value.weight.grad = None
