"""gelu, and is_causal, give float64 for float32; gelu is the one by tanh."""

import math

import lucid
import lucid.nn.functional as F
import numpy as np
from lucid import nn

x = np.float32([-2.7])
print("gelu:", F.gelu(lucid.tensor(x)).numpy(), F.gelu(lucid.tensor(x)).numpy().dtype, "of", x.dtype)
print("by erf:", x * (1 + math.erf(x[0] / 2**0.5)) / 2)
layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
given = lucid.tensor(np.ones((1, 4, 8), np.float32))
print("is_causal=False:", layer(given).numpy().dtype, " is_causal=True:", layer(given, is_causal=True).numpy().dtype)
padding = lucid.tensor(np.zeros((1, 4), np.float32))
try:
    layer(given, src_key_padding_mask=padding, is_causal=True)
except AssertionError as error:
    print("is_causal beside a mask of padding: AssertionError", error)
