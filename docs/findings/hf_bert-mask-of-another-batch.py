"""A mask of padding of two items is taken for a batch of one: the second is left out, and nothing is said."""

import torch
from transformers import BertConfig
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.bert.modeling_bert import BertLayer

config = BertConfig(hidden_size=8, num_attention_heads=2, intermediate_size=16, attn_implementation="sdpa")
x = torch.randn(1, 4, 8)
padding = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
mask = create_bidirectional_mask(config, x, padding)
with torch.no_grad():
    output = BertLayer(config)(x, mask)
print("x", tuple(x.shape), "attention_mask", tuple(padding.shape), "output", tuple(output.shape))
