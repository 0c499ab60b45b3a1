"""BertConfig's own epsilon is 1e-12: on a row of low variance the layer is far from one with PyTorch's 1e-5."""

import torch
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLayer

sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "attn_implementation": "sdpa"}
print("layer_norm_eps:", BertConfig().layer_norm_eps)
x = 1e-3 * torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(0))
outputs = []
for given in ({}, {"layer_norm_eps": 1e-5}):
    torch.manual_seed(0)
    with torch.no_grad():
        outputs.append(BertLayer(BertConfig(**sizes, **given)).eval()(x))
print("apart by", (outputs[0] - outputs[1]).abs().max().item())
