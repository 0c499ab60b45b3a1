"""Sentences on the causes that are seen, and what the author of the layer would do about each."""

SENTENCES: dict[str, str] = {
    "refusal": "What is wrong is not refused as it should be: {seen}.",
    "invariant": "An invariant is broken: {seen}.",
    "after-refusal": "A refusal leaves the layer otherwise than it was: {seen}.",
    "items": "Items are permuted: {seen}.",
    "reach": "Some keys are out of reach, and no mask says so: {seen}.",
    "no-key": "A query with no key to attend to gives NaN or infinity: first in {seen}.",
    "no-key spread": (
        "NaN or infinity comes out where a query has keys, beside queries that have none: first in {seen}."
    ),
    "padding": "What stands at padded positions comes out elsewhere: first in {seen}.",
    "gradient no-key": ("{a} gradient is NaN or infinite: first {seen}. A query has no key to attend to."),
    "gradient padding": ("{a} gradient is NaN or infinite: first {seen}. Padding holds what is not finite."),
    "gradient alone": "{a} gradient is NaN or infinite: first {seen}.",
}
"""Kind of cause, or its first word → what is said, of what was `seen`; `a` begins it, as the forward pass is."""
ADVICE: dict[str, str] = {
    "refusal num_heads": (
        "Raise an error where the layer is built, if d_model % num_heads is not 0, and name both numbers in it"
    ),
    "refusal activation": "Raise an error where the layer is built, and name the activation in it",
    "refusal feature_size": (
        "Compare x's last axis with d_model before anything is computed: broadcasting would hide what is wrong"
    ),
    "refusal mask_shape": (
        "Compare the mask's sizes with those of x before anything is computed: it may be broadcast to the scores, and "
        "the scores not to it"
    ),
    "refusal input_dtype": "Compare x's dtype with the layer's: a cast would hide what is wrong",
    "after-refusal": "Look for what is set before the error is raised, and check everything before anything is kept",
    "invariant padding_content": (
        "Look for what reads padded positions: a key without the mask, or a sum or mean over the sequence"
    ),
    "invariant padding_length": (
        "Look for what counts positions: a mean over the sequence, a scale by its length, or an index from the end"
    ),
    "invariant batch_independence": (
        "Look for what mixes items: a statistic over the batch axis, a reshape that moves it, one item's mask for all"
    ),
    "invariant permutation": (
        "Look for what tells positions apart: a position that is added, a causal mask, or a reshape of the sequence"
    ),
    "invariant causality": (
        "Look at the causal mask: its diagonal, which axis is the keys', and whether another mask takes its place"
    ),
    "invariant layout": "Look at how x is turned round for the layout, and whether masks and output are too",
    "invariant mask_encoding": (
        "Look at how masks are read: which value lets a query attend, integers as booleans, and the axes of [B, S]"
    ),
    "invariant determinism": (
        "Look for what is drawn in evaluation, such as dropout that is left on, and for memory that is read before it "
        "is written"
    ),
    "invariant train_without_dropout": (
        "Look for what differs in training though every rate is 0: a rate of its own, or running statistics"
    ),
    "invariant history": (
        "Look for what is kept from one call to the next: a mask, keys and values, or positions for another length"
    ),
    "items": "Put items back by the inverse of the order that they were sorted by: order.argsort()",
    "reach": "Look for a window, a longest length, or a kernel that does not go on over its blocks of keys",
    "no-key": "Give such a row its weights after the softmax, where no key of the mask is true: −∞ − −∞ is NaN",
    "no-key spread": (
        "Look for what reads beyond a row: a matrix product whose last, incomplete block of features takes those of "
        "the next row times 0, which is NaN where they are; or a statistic over several rows"
    ),
    "padding": (
        "Set padded positions to 0 before the values are weighed: a weight of 0 times NaN is NaN, and a weight that is "
        "not quite 0, of a mask of −10, lets 2^100 through"
    ),
    "gradient no-key": (
        "Look for weights that are put right after a softmax of −∞ alone: its own gradient is NaN, which the forward "
        "pass hides (fully-masked-row-nan). Give such rows finite scores before the softmax, and 0 after it"
    ),
    "gradient padding": (
        "A gradient of 0 times what padding holds is NaN: set padded positions to 0 where the layer is given them"
    ),
    "gradient alone": (
        "Look for a branch that the forward pass does not take and the backward pass multiplies by 0: a root, a "
        "logarithm or a division whose argument is 0 there"
    ),
}
"""Kind of cause → what its author would do."""
