"""The sentences of what is done with heads otherwise than the specification says, and what to do about each."""

from encoder_conformance.readers.onnx_file.tracing.features import Feature

SOURCE = "compare its output with that of the module that it was exported from, at several lengths"
"""What to do where nothing else is known."""
OF_HEADS: dict[Feature, tuple[str, str]] = {
    "heads_beside": (
        "no position attends to another: the heads of each attend to one another, as where they are not put before the "
        "positions (transposed); in the specification each head attends over all positions (E-5)",
        "transpose heads and positions before the scores",
    ),
    "one_key": (
        "no position attends to another: the scores are of one query and one key each, and a softmax of one number is "
        "1; in the specification each head attends over all positions (E-5)",
        "give it a sequence, and put the heads before the positions (transposed)",
    ),
    "heads_cut": (
        "heads are cut without a transpose, or otherwise of positions; in the specification a head has the same "
        "features of every position (E-5)",
        "cut the features into heads, [batch, sequence, heads, d_head], and then transpose heads and positions",
    ),
    "heads_merged": (
        "what heads give is put together without a transpose, so that a position gets what others attend to; in the "
        "specification it gets its own of each head, and a linear map follows (E-5)",
        "transpose heads and positions back, and then put the heads together",
    ),
    "one_query": (
        "features of one position alone are multiplied by those of others, as of a class token that is the one query; "
        "in the specification each position is a query (E-5)",
        SOURCE,
    ),
    "value_dim": ("heads of value are of another size than those of query and key; a layer has heads of one", SOURCE),
}
