"""openai-whisper with scaled_dot_product_attention takes any mask for the causal one: a mask of padding lets padding
through, and hides keys after the query. Without SDPA the mask is added, as it says."""

import torch
from whisper.model import MultiHeadAttention, disable_sdpa

torch.manual_seed(0)
attention, x = MultiHeadAttention(8, 2).eval(), torch.randn(1, 4, 8)
padding = torch.zeros(4, 4).masked_fill(torch.arange(4) == 3, -torch.inf)  # the last key is padding
with torch.no_grad():
    by_sdpa, _ = attention(x, mask=padding)
    with disable_sdpa():
        as_given, _ = attention(x, mask=padding)
        causal, _ = attention(x, mask=torch.full((4, 4), -torch.inf).triu(1))
print(f"by SDPA, from the mask that was given: {(by_sdpa - as_given).abs().max():.2f}")
print(f"by SDPA, from a causal mask: {(by_sdpa - causal).abs().max():.1e}")
