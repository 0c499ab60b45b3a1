"""Eager attention of ViT in float64 takes its softmax in float32; sdpa, and eager attention of BERT, in float64.
(https://github.com/huggingface/transformers/issues/48459)"""

import torch
from torch import nn
from transformers.models.bert import modeling_bert as bert
from transformers.models.vit import modeling_vit as vit

q, k, v = torch.randn(3, 1, 2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
right = (q @ k.mT / 8**0.5).softmax(-1)
module = nn.Module().eval()
for name, models in (("vit", vit), ("bert", bert)):
    _, weights = models.eager_attention_forward(module, q, k, v, None, scaling=8**-0.5)
    print(f"{name}: weights {weights.dtype}, from the softmax in float64: {(weights - right).abs().max():.1e}")
