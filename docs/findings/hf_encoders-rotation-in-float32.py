"""ModernBERT and ESM in float64 cast queries and keys to float32 before they turn them; EuroBERT does not."""

import torch
from transformers.models.esm import modeling_esm as esm
from transformers.models.eurobert import modeling_eurobert as eurobert
from transformers.models.modernbert import modeling_modernbert as modernbert

q, k = torch.randn(2, 1, 2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
angle = torch.arange(5.0, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
cos, sin = (torch.cat([part, part], -1)[None] for part in (angle.cos(), angle.sin()))
first, second = q.chunk(2, -1)
right = q * cos[:, None] + torch.cat([-second, first], -1) * sin[:, None]
for name, models in (("modernbert", modernbert), ("esm", esm), ("eurobert", eurobert)):
    turned, _ = models.apply_rotary_pos_emb(q, k, cos, sin)
    print(f"{name:10} {turned.dtype}, from q cos + rotate(q) sin: {(turned - right).abs().max():.1e}")
