"""A padded position of 2^100 makes every output of a pre-norm layer NaN in float32, for some d_model: LayerNorm of a
row that is 2^100 throughout, whose variance is 0, is NaN where its vectorised form takes the whole row."""

import torch
from torch import nn

for d_model in (14, 16, 20, 24, 30, 32):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(d_model, 1, 16, batch_first=True, norm_first=True).eval()
    x = torch.randn(1, 4, d_model)
    x[0, 3] = 2.0**100
    with torch.no_grad():
        output = layer(x, src_key_padding_mask=torch.tensor([[False, False, False, True]]))
        norm = layer.norm1(x)[0, 3, 0].item()
    print(f"d_model {d_model}: LayerNorm there {norm}, position 0 gives {output[0, 0, :3].tolist()}")
