"""A key of padding is not masked out: 1e12 is taken off its score. Where all is padding each score is the same float32,
and attention gives the mean of what was to be hidden."""

import lucid
import numpy as np
from lucid import nn

lucid.random.seed(0)
attention = nn.MultiHeadAttention(8, 1)  # with one head its split into heads does no harm
x = lucid.tensor(np.random.default_rng(0).normal(size=(1, 4, 8)).astype(np.float32))
padding = lucid.tensor(np.ones((1, 4), np.float32))
mean = attention.out_proj(attention.v_proj(x).mean(axis=1, keepdims=True))
print("all is padding:        ", attention(x, x, x, key_padding_mask=padding).numpy()[0, 0, :4])
print("the mean of all values:", mean.numpy()[0, 0, :4])
