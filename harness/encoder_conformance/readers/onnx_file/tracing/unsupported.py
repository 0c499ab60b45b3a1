"""The parts that some encoder layers have otherwise than the specification: a plain sentence for each, and what to do.

A pattern that is not followed names its node. Where it is one of these, the user is told which.
"""

from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.readers.onnx_file.tracing.unsupported_heads import OF_HEADS, SOURCE

NO_LAYER = "not an encoder layer as the specification knows it: "
"""What the sentences follow."""
_ALONE = "export the encoder layers by themselves, and validate those"
_PLAIN = "validate the file from before the optimiser: the same layer in ONNX's own operators"
SENTENCES: dict[Feature, tuple[str, str]] = {
    "rope": ("query or key is turned by its position otherwise than rotary positions (E-22) are", SOURCE),
    "layer_scale": (
        "each feature of a sub-layer's output is multiplied by its own number elsewhere than before the sum (E-31)",
        f"multiply it into the linear map before it, which computes the same, or {SOURCE}",
    ),
    "gated": ("the feed-forward network multiplies two maps otherwise than a gated one does (E-19)", SOURCE),
    "qk_norm": ("query and key are normed before their product otherwise than by qk-norm (E-27)", SOURCE),
    "turned_first": (
        "query and key are normed before their product otherwise than by qk-norm (E-27): turned by position first",
        SOURCE,
    ),
    "softcap": ("the scores are capped otherwise than by c · tanh(score / c) before the mask (E-30)", SOURCE),
    "position_bias": (
        "numbers of its own are added to the scores, and are no table's by buckets of distance (E-23)",
        f"give them by a mask of numbers [batch, heads, sequence, sequence], or {SOURCE}",
    ),
    "padded": (
        "it adds positions or features that are not x's, as registers or to fill windows, or a column to its scores, "
        "to shift them by distance; the specification has each position's own",
        SOURCE,
    ),
    "own_keys": (
        "there are keys and values beside those of the positions, otherwise than one of each head (E-44)",
        SOURCE,
    ),
    "by_place": (
        "numbers of query's and key's places are added to the scores, as of rows and columns; the specification adds a "
        "table's by the distance from one to the other (E-23)",
        f"give them by a mask of numbers [batch, heads, sequence, sequence], or {SOURCE}",
    ),
    "distance": (
        "numbers by distance are added to the scores, of neither a table by buckets (E-23) nor ALiBi (E-43)",
        f"give them by a mask of numbers [batch, heads, sequence, sequence], or {SOURCE}",
    ),
    "window": (
        "a position attends to those near it alone, and the window was not found in the graph (E-26)",
        f"judge it at lengths that the window spans, or {SOURCE}",
    ),
    "own_mask": (
        "some positions are hidden from some others by a pattern of its own; the specification's masks are given",
        f"give the pattern by a mask [sequence, sequence], or {SOURCE}",
    ),
    "some_norm": ("some of query, key and value read x, and some its norm, or another of its norms", SOURCE),
    "unseen": ("some positions are hidden from all others by a mask of its own; here masks are given", SOURCE),
    "keys_overwritten": (
        "scores or weights of some queries or keys are overwritten with numbers (index_fill, scatter, scores[…] = v), "
        "as of a class token or a diagonal that is masked; in the specification only a mask that is given hides a key",
        f"give the pattern by a mask [sequence, sequence], or {SOURCE}",
    ),
    "overwritten": (
        "some elements of what depends on x are overwritten (index_fill, scatter, x[…] = v); no step does that",
        SOURCE,
    ),
    "second_bias": (
        "a second bias is added to a linear map that has one; in the specification a map has one (E-2)",
        SOURCE,
    ),
    "drawn": (
        "it draws random numbers in evaluation, too, and gives another output for another key",
        "make it with a rate of 0, or with an argument that turns it off",
    ),
    "second_map": (
        "a second map of the same is added to a linear map, as LoRA's two are; in the specification one map makes each",
        f"add the product of the second's weights to the first's weight, which computes the same, or {SOURCE}",
    ),
    "second_gain": (
        "what a norm gives is multiplied by a second vector; in the specification a norm has one gain and one shift "
        "(E-1)",
        f"multiply it into the norm's own gain and shift, which computes the same, or {SOURCE}",
    ),
    "shifted": (
        "an RMSNorm adds a vector to what it gives; in the specification an RMSNorm has a gain alone (E-9)",
        f"add it to the bias of the linear maps behind it, times their weight, which computes the same, or {SOURCE}",
    ),
    "second_softmax": (
        "the weights of attention are normalised twice, as by a softmax of a softmax, or with an attention sink beside "
        "weights in place of scores; in the specification one softmax is taken, of the scores (E-5)",
        SOURCE,
    ),
    "self_hidden": (
        "each position is hidden from itself, as locality self-attention does; in the specification it sees itself, "
        "unless a mask that is given hides it",
        f"give the pattern by a mask [sequence, sequence], or {SOURCE}",
    ),
    "normed_skip": (
        "what skips a sub-layer is normed with what it reads, x = norm(x), then x + sub-layer(x); in a pre-norm layer "
        "(E-3) what skips is not normed, and in a post-norm layer (E-4) a norm stands behind the last sum",
        SOURCE,
    ),
    "normed_first_branch": (
        "attention reads a norm of what skips it, and a norm stands behind each sum; in a pre-norm layer (E-3) none "
        "stands there, and in a post-norm layer (E-4) attention reads what skips it",
        SOURCE,
    ),
    "second_sequence": (
        "it attends to another sequence, as a layer of a decoder does; the layers of encoders take one",
        "name a part that takes one sequence (--at PATH)",
    ),
    "norm_behind_sum": (
        "the norm of attention stands before it, and that of the feed-forward network behind its sum; in a pre-norm "
        "layer (E-3) each stands before its sub-layer, and in a post-norm layer (E-4) behind its sum",
        SOURCE,
    ),
    "normed_first": (
        "x is normed before the first layer, as behind an embedding; a layer of the specification takes x as it is",
        "name the part behind that norm (--at PATH)",
    ),
    "gated_attention": (
        "what attention gives is multiplied by a gate that is computed from x (gated attention); in the specification "
        "a linear map alone follows it (E-5)",
        SOURCE,
    ),
    "gated_skip": (
        "a gate that is computed of x stands in the place of a residual sum, as in a gated Transformer (GTrXL); in the "
        "specification what skips a sub-layer is added as it is (E-3, E-4)",
        SOURCE,
    ),
    "no_norm": (
        "a norm is missing, or another function stands in its place, as a dynamic tanh; a layer of the specification "
        "norms what it reads or what it gives (E-3, E-4)",
        SOURCE,
    ),
    "latent": (
        "query, key or value is computed from another map of x, as in multi-head latent attention; in the "
        "specification each is one map of x (E-5)",
        f"multiply the two maps, which computes the same where no norm stands between them, or {SOURCE}",
    ),
    "norm_of_part": (
        "a norm, a mean or a softmax takes some of the features of a position alone, as of the keys and values of "
        "multi-head latent attention; in the specification a norm takes all of a position, or of a head (E-1, E-27)",
        SOURCE,
    ),
    "no_softmax": (
        "attention's weights are no softmax of the scores over the keys (E-5), as of a sigmoid, a ReLU, or a softmax "
        "whose sum has a term more (an attention sink)",
        SOURCE,
    ),
    "late_division": (
        "attention's weights are divided by their sum after the product with the values, or never; a softmax is "
        "recognised before that product (E-5)",
        SOURCE,
    ),
    "weights_scaled": (
        "attention's weights are multiplied by a number, as where the scale stands behind the softmax, or a head is "
        "switched off; in the specification they sum up to 1 over the keys (E-5)",
        SOURCE,
    ),
    "head_scales": (
        "the scores of each head are multiplied by a number of its own, as in cosine attention; in the specification "
        "all heads have one scale (E-5)",
        SOURCE,
    ),
    "skip_scaled": (
        "a residual sum multiplies what skips the sub-layer, as DeepNorm's alpha or a weighted mean does; in the "
        "specification that stays as it is, and what the sub-layer gives may be multiplied (E-29)",
        f"divide the weights that lead to the sum by the number, and the norm's epsilon by its square, or {SOURCE}",
    ),
    "activation": (
        "its activation is none that a layer may have: relu, gelu, gelu_tanh, silu and quick_gelu are known (E-10)",
        SOURCE,
    ),
    "activated": (
        "an activation stands behind a map or a norm that has none in the specification; there the feed-forward "
        "network's first map alone is followed by one (E-10)",
        SOURCE,
    ),
    "side_by_side": (
        "values that are not the heads of one attention are put side by side (concatenated); in the specification "
        "heads alone are",
        SOURCE,
    ),
    "attention_alone": (
        "it is attention without a feed-forward network behind it; a layer of the specification has both",
        "name the part that has both (--at PATH)",
    ),
    "skip_of_first": (
        "the feed-forward network's sum adds x, and not what attention's sum gives; in the specification the second "
        "sum adds what the first gives (E-3), or its norm (E-4)",
        SOURCE,
    ),
    "skip_of_attention": (
        "attention's sum adds what attention gives to a map of that, and not x; in the specification the first sum "
        "adds x (E-3), or its norm (E-4)",
        SOURCE,
    ),
    "skip_of_branch": (
        "the feed-forward network's sum adds what attention gives, and not the sum of that and x; in the specification "
        "the second sum adds what the first gives (E-3), or its norm (E-4)",
        SOURCE,
    ),
    "left_out": (
        "a residual sum adds a norm of x to x: attention, or the feed-forward network, is not called between them",
        SOURCE,
    ),
    "network_alone": (
        "it is a feed-forward network without attention before it; a layer of the specification has both",
        "name the part that has both (--at PATH)",
    ),
    "grouped_map": (
        "a linear map takes some of the features alone, or has other weights for each group of features, each head or "
        "each position; in the specification a map takes all features, and is the same at each position (E-2)",
        SOURCE,
    ),
    "map_of_heads": (
        "one linear map takes the features of each head in turn, which do not lie side by side; in the specification a "
        "map takes all features of a position (E-2)",
        SOURCE,
    ),
    "softmax_of_features": (
        "a softmax is taken over the features of each position, as for a gate; in the specification one is taken, of "
        "the scores over the keys (E-5)",
        SOURCE,
    ),
    "map_of_positions": (
        "a linear map is taken over the positions, as in Linformer and MLP-Mixer; in the specification attention alone "
        "mixes them",
        SOURCE,
    ),
    "unmapped": (
        "what attention gives is taken as it is, without the linear map that follows it in the specification (E-5)",
        SOURCE,
    ),
    "of_a_branch": (
        "the feed-forward network reads what attention gives, and not the residual sum of that and x",
        SOURCE,
    ),
    "subtracted": (
        "one thing that depends on x is subtracted from another, as in differential attention; the specification adds "
        "them alone",
        SOURCE,
    ),
    "one_map": (
        "its feed-forward network is one linear map; in the specification there are two, and an activation between "
        "them (E-10)",
        SOURCE,
    ),
    "limited": (
        "numbers are kept within limits (clamp, clip), and what is beyond them is cut off; the specification computes "
        "with all numbers",
        SOURCE,
    ),
    "no_projection": (
        "query, key or value is x itself, without a linear map before it; in the specification each is one map of what "
        "attention reads (E-5)",
        SOURCE,
    ),
    "skip_twice": (
        "a residual sum adds twice what skips the sub-layer; in the specification it is added once",
        SOURCE,
    ),
    "head_gains": (
        "query and key are normed with a gain for each head; with qk-norm all heads have one (E-27)",
        SOURCE,
    ),
    "modulated": (
        "gains and shifts of its norms are computed from another input (adaptive norms, adaLN); in the specification "
        "they are parameters",
        SOURCE,
    ),
    "softmax_over_heads": (
        "the softmax of the scores is over the heads; in the specification it is over the keys (E-5)",
        SOURCE,
    ),
    "softmax_over_items": (
        "the softmax of the scores is over the items of the batch; in the specification it is over the keys (E-5)",
        SOURCE,
    ),
    "softmax_over_queries": (
        "the softmax of the scores is over the queries; in the specification it is over the keys (E-5)",
        SOURCE,
    ),
    "norm_kinds": (
        "query and key are normed by another kind of norm than x is; with qk-norm by the same (E-27)",
        SOURCE,
    ),
    "sandwich": ("a norm stands after a sub-layer, and not before and after each (sandwich norms, E-25)", SOURCE),
    "residual_scale": (
        "a residual sum weighs its sides otherwise than by one number for what both sub-layers give (E-29)",
        f"multiply the number into the linear map before it, which computes the same, or {SOURCE}",
    ),
    "grouped_queries": (
        "heads of queries share keys and values otherwise than in groups of neighbours (grouped queries, E-28)",
        f"repeat the key's and the value's columns, which computes the same, or {SOURCE}",
    ),
    "parallel": (
        "attention and the feed-forward network stand side by side, and not as x + attention(norm(x)) + "
        "feed_forward(norm(x)) (E-41)",
        SOURCE,
    ),
    "convolution": ("there is a convolution in it; the specification has none", _ALONE),
    "fourier": ("it mixes positions by a Fourier transform; the specification has attention alone", SOURCE),
    "batch": ("it norms each feature over a batch (BatchNorm); the specification norms each position's own", SOURCE),
    "over_positions": (
        "it norms over positions, too (GroupNorm, InstanceNorm); the specification norms each position's own",
        SOURCE,
    ),
    "pooled": (
        "a mean, a maximum, a norm or a softmax is taken over the positions, as in squeeze-and-excitation, pooling and "
        "linear attention; in the specification attention alone mixes them",
        SOURCE,
    ),
    "relative": (
        "what depends on x is multiplied with vectors that do not, as with those of positions, or at random; scores "
        "are of queries and keys alone",
        SOURCE,
    ),
    "products": (
        "it has more products of what depends on x than attention's two: queries with keys, and weights with values",
        SOURCE,
    ),
    "blocks": (
        "its scores are of fewer keys than there are positions, as of attention within blocks or to a summary of them",
        SOURCE,
    ),
    "tied_items": (
        "its scores are sums over the items of the batch, as of tied attention over the rows of an alignment; in the "
        "specification each item has scores of its own (E-5)",
        SOURCE,
    ),
    **OF_HEADS,
    "additive": ("its scores are no products of queries and keys, as of additive attention (E-5)", SOURCE),
    "bias_of_x": ("what is added to its scores depends on x; the specification adds a table's rows (E-23)", SOURCE),
    "sums": (
        "it has more residual sums than the two of a layer, of attention and of one feed-forward network",
        SOURCE,
    ),
    "one_gain": (
        "a value is multiplied by one number that is a parameter, as in ReZero, ScaleNorm and DyT; norms and layer "
        "scale have one for each feature (E-31)",
        SOURCE,
    ),
    "added": (
        "numbers that do not depend on x are added to it, as positions are; a layer takes an x that has them already",
        "name the part that takes that x (--at PATH)",
    ),
    "recurrence": ("there is a recurrent network in it; the specification has none", _ALONE),
    "control_flow": (
        "there are branches or loops in it (If, Loop, Scan); they are not followed",
        "export with torch.export (dynamo=True), or unroll the loop over the layers",
    ),
    "experts": ("it chooses among experts; the specification has one feed-forward network", SOURCE),
    "positions": (
        "it chooses some of the positions by their values; in the specification each position is a query and a key",
        SOURCE,
    ),
    "largest": (
        "it chooses the largest of some values, as among experts or positions; the specification uses all",
        SOURCE,
    ),
    "talking_heads": (
        "scores or weights of attention are multiplied with a matrix, as talking heads are; in the specification each "
        "head attends by itself",
        SOURCE,
    ),
    "unkeyed": ("the layer language has no key for what it does", SOURCE),
    "fused": ("ONNX Runtime's optimiser fused attention or an embedding into one operator; it is not followed", _PLAIN),
    "integer_product": (
        "its weights go into a product of packed integers; it is not followed",
        "quantise with quant_format=QuantFormat.QDQ, which stores the same integers for ONNX's own operators",
    ),
}  # fmt: skip
