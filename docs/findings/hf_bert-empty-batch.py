"""A batch of no items, which torch.nn.TransformerEncoderLayer takes, is an error: heads are split by view(…, -1, d)."""

import torch
from torch import nn
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLayer

x = torch.randn(0, 4, 8)
print("TransformerEncoderLayer:", tuple(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(x).shape))
try:
    BertLayer(BertConfig(hidden_size=8, num_attention_heads=2, intermediate_size=16, attn_implementation="sdpa"))(x)
except RuntimeError as error:
    print("BertLayer:", error)
