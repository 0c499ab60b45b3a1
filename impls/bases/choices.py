"""What our encoders read off a layer description, whatever the framework: sizes, and parts without their arithmetic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from encoder_conformance.spec.attention_choices import is_global, theta_of
from encoder_conformance.spec.plan import with_attributes

Description = Mapping[str, Any]


class Heads(NamedTuple):
    """The number of heads, of heads of keys and values (E-28), and the features of each (E-20)."""

    number: int
    of_keys: int
    features: int

    @classmethod
    def of(cls, layer: Description) -> Self:
        D, chosen = layer["d_model"], layer["attention"]
        H = chosen["num_heads"]
        if "head_dim" not in chosen:
            refuse_uneven(D, H)
        return cls(H, chosen.get("kv_heads", H), chosen.get("head_dim") or D // H)


def refuse_uneven(features: int, num_heads: int) -> None:
    """Raises ValueError where the features are not a whole number for each head."""
    if features % num_heads:
        raise ValueError(f"d_model = {features} is not divisible by num_heads = {num_heads}")


def refuse_unfit(x: Sequence[int], mask: Sequence[int] | None, d_model: int, num_heads: int) -> None:
    """Refuse shapes that a framework would broadcast, or refuse in the words of a kernel (X-1)."""
    if len(x) != 3 or x[-1] != d_model:
        raise ValueError(f"x is {list(x)}, and the layer takes [batch, sequence, {d_model}]")
    due = (x[0], num_heads, x[1], x[1])
    # The due size comes first, for torch.export, to which batch and sequence are symbols: they differ from 1.
    if mask is not None and not all(size in (n, 1) for size, n in zip(mask[::-1], due[::-1], strict=False)):
        raise ValueError(f"the mask is {list(mask)}, which does not broadcast to {list(due)}")


def scaled_by(layer: Description) -> float:
    """What the scores' divisor is the root of: d (E-5), D (E-13) or a number."""
    scale = layer["attention"]["scale"]
    divisor: float = {"d_model": layer["d_model"], "head_dim": Heads.of(layer).features}.get(scale, scale)
    return divisor


def norm_places(layer: Description, sublayer: int, number: int = 0) -> list[str]:
    """Where sub-layer 1 or 2 of layer `number` has a norm: before its body (E-3), after it (E-25, E-40), of the sum
    (E-4). A first norm may be left out (E-24), and one of both sub-layers (E-41) is of neither."""
    if layer.get("parallel") == "one_norm":
        return []
    places = {"pre": ["norm_before"], "post": ["norm_of_sum"], "sandwich": ["norm_before", "norm_after"]}
    places["res_post"] = ["norm_after"]
    lacks_first = (number, sublayer) == (0, 1) and not layer["norm"].get("first", True)
    return [place for place in places[layer["norm"]["placement"]] if not (lacks_first and place == "norm_before")]


def slope_exponents(slopes: str | None, num_heads: int) -> tuple[float, ...]:
    """The power of 2 by which each head's scores fall with distance (E-43), −8 (h + 1) / H for h from 0. Where slopes
    are interpolated: that of the largest power of two of heads below H, and then every second one of twice as many."""
    if slopes is None:
        return tuple(-8.0 * (head + 1) / num_heads for head in range(num_heads))
    most = 1 << num_heads.bit_length() - 1
    own, between = (slope_exponents(None, heads) for heads in (most, 2 * most))
    return (*own, *between[::2][: num_heads - most])


@dataclass(frozen=True)
class RotationChoice:
    """Turns the first `size` features of each head by s · theta^(−2i / size): pair i is features i and i + size / 2, or
    2i and 2i + 1 where they are interleaved (E-22)."""

    theta: float
    size: int
    interleaved: bool = False

    @classmethod
    def of(cls, layer: Description, number: int = 0) -> Self | None:
        """That of layer `number` of a stack (E-33)."""
        if (theta := theta_of(with_attributes(layer), number)) is None:
            return None
        rope = layer["attention"]["rope"]
        return cls(theta, rope.get("rotated", Heads.of(layer).features), rope["pairing"] == "interleaved")


@dataclass(frozen=True)
class WindowChoice:
    """The keys that a query may attend to: `left` before it, and `right` after it (E-26)."""

    left: int
    right: int

    @classmethod
    def of(cls, layer: Description, number: int = 0) -> Self | None:
        """That of layer `number` of a stack, some of which may have none (E-33)."""
        window = layer["attention"].get("window")
        return None if window is None or is_global(with_attributes(layer), number) else cls(**window)


@dataclass(frozen=True)
class SoftmaxChoice:
    """`masked_score`: the score of a masked key (M-1), minus infinity if it is None. `empty_row`: the weights of a
    query with no key to attend to (M-4), which are zero, uniform (1/S) or nan."""

    masked_score: float | None = None
    empty_row: str = "uniform"

    @classmethod
    def of(cls, layer: Description) -> Self:
        """A row that is left open is the class's own."""
        filled, row = layer["attention"]["masked_score"], layer["attention"]["fully_masked_row"]
        return cls(
            None if filled == "minus_infinity" else filled, **({} if row == "unspecified" else {"empty_row": row})
        )
