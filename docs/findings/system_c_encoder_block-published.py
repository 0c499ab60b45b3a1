"""An attention that projects the query and no more: no position sees another, and keys and values have no gradient. A
dropout that is built and never used leaves training without it."""

import torch
from torch import nn

torch.manual_seed(0)
query, key, value, output = (nn.Linear(8, 8) for _ in range(4))
unused = nn.Dropout(0.5).train()
x = torch.randn(1, 4, 8)
attended = output(query(x))
other = x.clone()
other[0, 1:] += 1.0
print("position 0, when all others change:", (output(query(other)) - attended)[0, 0].abs().max().item())
attended.sum().backward()
print("gradient by the key's weight:", key.weight.grad, "by the value's:", value.weight.grad)
print("two passes in training differ by", (output(query(x)) - attended).abs().max().item(), "with", unused, "built")
