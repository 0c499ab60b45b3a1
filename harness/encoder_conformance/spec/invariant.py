"""Preconditions of the invariants: the sizes and masks under which each holds and can fail (clauses I-*)."""

from encoder_conformance.spec.masking import Causal, Drawn, EndPadding, Mask


def unfit(invariant: str, batch: int, sequence: int, mask: Mask) -> str:
    """The reason why an invariant does not apply to inputs of this size under this mask; "" if it applies."""
    padding, attention = mask.padding, mask.attention
    any_size = attention is None or isinstance(attention, Causal)  # other masks are drawn or listed for one size
    match invariant:
        case _ if batch == 0:
            return "batch is 0: there is nothing to compare"
        case "padding_content" if padding is None:
            return "mask.padding is null: there is no padding whose content could differ"
        case "padding_length" if isinstance(padding, EndPadding) and padding.kind == "left":
            return "mask.padding is left: more of it would move every position"
        case "padding_length" | "batch_independence" if not any_size:
            return "mask.attention is made for one size: it must be null or causal if the size differs"
        case "batch_independence" if batch < 2:
            return "batch is 1: there is no other item"
        case "permutation" if attention is not None or mask.bias is not None:
            return "mask.attention or mask.bias tells positions apart: it is null where they are permuted"
        case "causality" if not isinstance(attention, Causal):
            return "mask.attention is not causal"
        case "permutation" | "causality" if sequence < 3:
            return f"sequence is {sequence}: there are too few positions to tell apart"
        case "mask_encoding" if padding is None and attention is None:
            return "there is no mask to give in another form"
        case "mask_encoding" if isinstance(attention, Drawn) and attention.axes != "S,S":
            return f"mask.attention differs along {attention.axes}: it cannot be given as [S, S]"
    return ""
