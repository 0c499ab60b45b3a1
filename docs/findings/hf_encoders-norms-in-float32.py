"""RMSNorm of transformers in float64: it casts to float32, or takes its mean square in float32."""

import torch
from transformers.models.aimv2.modeling_aimv2 import Aimv2RMSNorm
from transformers.models.eurobert.modeling_eurobert import EuroBertRMSNorm
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm
from transformers.models.t5.modeling_t5 import T5LayerNorm

x = torch.randn(4, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
right = x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
for norm in (T5LayerNorm, Qwen3RMSNorm, EuroBertRMSNorm, Aimv2RMSNorm, Gemma3RMSNorm):
    with torch.no_grad():
        found = norm(64, eps=1e-6).double()(x)
    print(f"{norm.__name__:16} {found.dtype}, from x / √(mean square + ε): {(found - right).abs().max():.1e}")
