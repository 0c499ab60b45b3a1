"""Which of the parts that some encoder layers have otherwise than the specification no layer can be stated to have."""

from encoder_conformance.readers.onnx_file.tracing.features import Feature

BEYOND: tuple[Feature, ...] = (
    *("parallel", "convolution", "fourier", "batch", "relative", "products", "blocks", "bias_of_x", "sums"),
    *("added", "recurrence", "experts", "positions", "largest", "distance", "unkeyed", "talking_heads"),
    *("skip_scaled", "head_gains", "modulated", "by_place", "padded", "self_hidden"),
    *("norm_kinds", "activation", "normed_skip", "normed_first", "normed_first_branch", "head_scales", "no_softmax"),
    *("latent", "gated_attention", "own_keys", "over_positions", "one_gain", "pooled", "overwritten"),
    *("keys_overwritten", "second_bias", "second_softmax", "activated", "side_by_side", "limited", "turned_first"),
    *("attention_alone", "network_alone", "softmax_of_features", "grouped_map", "map_of_positions"),
    *("unmapped", "heads_beside", "no_projection", "one_map", "subtracted"),
    *("second_gain", "shifted", "drawn", "gated_skip", "heads_merged", "one_query", "one_key", "map_of_heads"),
    *("tied_items", "norm_of_part", "unseen", "some_norm", "second_map", "norm_behind_sum", "second_sequence"),
    *("additive", "value_dim"),
)
"""What no layer can be stated to have: to name a layer helps nobody there."""
