"""A query with no key: with a mask of the lowest numbers MLX gives the mean of all values, padding too."""

import mlx.core as mx
from mlx import nn

attention = nn.MultiHeadAttention(8, 2)
x = mx.random.normal((1, 5, 8))
mask = mx.zeros((5, 5))
mask[3] = mx.finfo(mx.float32).min
given = attention(x, x, x, mask)
mean = attention.out_proj(attention.value_proj(x).mean(axis=1))
print("query 3, which has no key:", given[0, 3, :3])
print("the mean of all values:   ", mean[0, :3])
