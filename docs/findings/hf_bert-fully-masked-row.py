"""A query with no key: sdpa gives zeros, eager attention the mean of all values, padding too, and eager attention with
a mask of minus infinities NaN."""

import torch
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLayer

x = torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(0))
allowed = torch.ones(1, 1, 4, 4, dtype=torch.bool)
allowed[..., 2, :] = False
lowest, infinite = (
    torch.zeros(1, 1, 4, 4).masked_fill(~allowed, fill) for fill in (torch.finfo(torch.float32).min, -torch.inf)
)
for attention, mask in (("sdpa", allowed), ("eager", lowest), ("eager", infinite)):
    torch.manual_seed(0)
    config = BertConfig(hidden_size=8, num_attention_heads=2, intermediate_size=16, attn_implementation=attention)
    with torch.no_grad():
        output = BertLayer(config).eval()(x, mask)
    print(f"{attention:5} {mask.dtype}, {mask.min().item():.3g}:", output[0, 2, :3].tolist())
