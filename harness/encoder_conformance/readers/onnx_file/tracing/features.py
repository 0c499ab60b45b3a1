"""What some encoder layers have otherwise than the specification, by name. `unsupported` has the sentence of each."""

from typing import Literal

Feature = Literal[
    "rope", "layer_scale", "gated", "qk_norm", "softcap", "sandwich", "residual_scale", "grouped_queries", "parallel",
    "convolution", "recurrence", "control_flow", "experts", "fused", "integer_product", "position_bias", "window",
    "own_mask", "fourier", "batch", "relative", "products", "blocks", "one_gain", "bias_of_x", "sums", "added",
    "distance", "positions", "largest", "unkeyed", "talking_heads", "skip_scaled", "head_gains",
    "softmax_over_queries", "by_place", "softmax_over_heads", "softmax_over_items", "padded", "skip_twice", "modulated",
    "self_hidden", "norm_kinds", "activation", "normed_skip", "normed_first", "normed_first_branch", "head_scales",
    "no_softmax", "latent", "gated_attention", "no_norm", "own_keys", "over_positions", "pooled", "overwritten",
    "keys_overwritten", "second_bias", "second_softmax", "activated", "side_by_side", "limited", "turned_first",
    "attention_alone", "network_alone", "softmax_of_features", "grouped_map", "map_of_positions", "unmapped",
    "weights_scaled", "late_division", "heads_beside", "heads_cut", "no_projection", "one_map", "subtracted",
    "of_a_branch", "skip_of_first", "skip_of_attention", "skip_of_branch", "left_out", "second_gain", "shifted",
    "drawn", "gated_skip", "heads_merged", "one_query", "one_key", "map_of_heads", "tied_items", "norm_of_part",
    "unseen", "some_norm", "second_map", "norm_behind_sum", "second_sequence", "additive", "value_dim",
]  # fmt: skip
