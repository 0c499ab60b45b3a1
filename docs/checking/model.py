"""A port of BERT's layer."""

from torch import nn


class Block(nn.Module):
    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ln1, self.ln2 = nn.LayerNorm(width, eps=1e-3), nn.LayerNorm(width, eps=1e-3)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, padding=None):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mask = None if padding is None else ~padding[:, None, None, :]
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.ln1(x + self.out(y.transpose(1, 2).flatten(2)))
        return self.ln2(x + self.down(nn.functional.gelu(self.up(x))))
