"""With one head as wide as the model attention has no output projection, unless attn_project_out asks for it."""

from x_transformers import Encoder

for heads, given in ((2, {}), (1, {}), (1, {"attn_project_out": True})):
    encoder = Encoder(dim=8, depth=1, heads=heads, attn_dim_head=8 // heads, **given)
    print(heads, given, [name for name in encoder.state_dict() if "to_out" in name])
