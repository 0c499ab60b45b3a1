"""Heads that do not divide d_model are refused by an assertion that names neither number."""

from torch import nn

try:
    nn.TransformerEncoderLayer(20, 6)
except AssertionError as error:
    print(f"AssertionError: {error}")
