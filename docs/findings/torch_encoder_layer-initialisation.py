"""Query, key and value are one matrix [3 · d_model, d_model], drawn as such: their weights are Xavier uniform for four
times d_model in place of twice, smaller by the root of 2. (https://github.com/pytorch/pytorch/issues/166378)"""

import torch
from torch import nn

torch.manual_seed(0)
d_model = 256
layer = nn.TransformerEncoderLayer(d_model, 8, 1024)
query = layer.self_attn.in_proj_weight[:d_model]
print("largest weight of query:      ", query.abs().max().item())
print("Xavier's for d_model, d_model:", (6 / (2 * d_model)) ** 0.5)
print("largest bias of linear1:      ", layer.linear1.bias.abs().max().item())
