"""A case: one layer in one situation, with its input tensors and masks (clauses S-*)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.spec import portable
from encoder_conformance.spec.axes import BSA, Array, Bools
from encoder_conformance.spec.case_parameters import CaseParameters, drawn
from encoder_conformance.spec.families import RECOMMENDED_AT_MOST
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.level import Level
from encoder_conformance.spec.masking import Blind, Causal, Drawn
from encoder_conformance.spec.parameters import parameters_of
from encoder_conformance.spec.portable import Floats
from encoder_conformance.spec.situation import WITH_GOLDEN, Check, Situation
from encoder_conformance.spec.stages import OF_KEYS, SCORES, appended_keys, stage_shape, stages, step_of

CONTENT = {"huge": 2.0**100, "nan": np.nan, "infinity": np.inf}
"""The content of positions that are not valid (clause M-8)."""
NO_ROWS = np.zeros((0, 2), dtype=np.int64)
"""No rows, [0, 2] pairs of item and position."""
PADDING_ID = 0
"""The token id of padding, and of nothing else, where padding is given by ids (M-9, P-7)."""


@dataclass(frozen=True)
class Case:
    """One layer in one situation.

    `seed` selects the draw of x, parameters and cotangent (rule P-6). Goldens are frozen for seed 0. `held`: parameters
    that are not drawn; such a case has no frozen golden. `in_core`: `specs/core.yaml` lists the case. `held_x`: the
    input "x", [B, S, d_model], if it is not drawn.
    """

    layer: Layer
    situation: Situation
    seed: int = 0
    held: CaseParameters | None = None
    in_core: bool = False
    held_x: CaseParameters | None = None

    @property
    def id(self) -> str:
        return f"{self.layer.layer}/{self.situation.situation}"

    @property
    def numbers_from(self) -> tuple[int, str]:
        """The seed and the digests of what is held. For one layer and situation they determine x and the parameters."""
        return self.seed, "".join(each.digest for each in (self.held, self.held_x) if each)

    @property
    def golden_id(self) -> str:
        """Id of the case whose golden applies: this one, or the one that the situation `equals` (G-4)."""
        return f"{self.layer.layer}/{self.situation.equals or self.situation.situation}"

    @property
    def has_golden(self) -> bool:
        """Whether the case has a golden file of its own."""
        return self.situation.equals is None and not self.needs_no_golden

    @property
    def needs_no_golden(self) -> bool:
        """Whether none of its checks is judged by a golden, its own or another's. Invariants are an example."""
        return self.situation.equals is None and WITH_GOLDEN.isdisjoint(self.situation.checks)

    def as_frozen(self) -> "Case":
        """The case with padding as drawn, for which goldens are frozen. Padding content changes no output (M-8)."""
        drawn = self.situation.input.model_copy(update={"padding": "as_drawn"})
        return replace(self, situation=self.situation.model_copy(update={"input": drawn}))

    @property
    def level(self) -> Level:
        """`core` if `specs/core.yaml` lists the case, or its own level."""
        return "core" if self.in_core else self.own_level

    @cached_property
    def own_level(self) -> Level:
        """The level without regard to the core: the situation's, at most `recommended` for some layers (V-9)."""
        weaker = self.layer.family in RECOMMENDED_AT_MOST or self.layer.additions
        return "recommended" if weaker and self.situation.level == "required" else self.situation.level

    @property
    def is_required(self) -> bool:
        """Whether an implementation has to pass the case where it applies. Every case of the core is required."""
        return self.own_level == "required"

    @property
    def clauses(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.layer.clauses, *self.situation.clauses)))

    @property
    def x_shape(self) -> tuple[int, int, int]:
        """[B, S, d_model], the shape of x and of the output. The output has it for token ids too."""
        return self.situation.batch, self.situation.sequence, self.layer.d_model

    def parameters(self) -> Mapping[str, Floats]:
        """Every parameter, float64: `held`, or drawn and scaled into the situation's numeric regime (P-5)."""
        if self.held is not None:
            return self.held.tensors
        return layer_parameters(self.layer, self.situation.parameter_exponents, self.seed)

    def x(self) -> Floats:
        """The input, [B, S, d_model]."""
        if self.held_x is not None:
            return self.held_x.tensors["x"]
        name, drawn = portable.drawn_for("x", self.seed), self.situation.input
        return portable.tensor(name, self.x_shape, drawn.pattern, drawn.exponent)

    def ids(self) -> npt.NDArray[np.int64]:
        """Token ids, [B, S] int64, which replace x for a layer with an embedding (rule P-7)."""
        assert self.layer.embedding is not None and self.layer.embedding.vocabulary is not None
        name, (B, S, _) = portable.drawn_for("ids", self.seed), self.x_shape
        vocabulary = self.layer.embedding.vocabulary
        if self.padding_id is None:
            return portable.ids(name, B * S, vocabulary).reshape(B, S)
        others = 1 + portable.ids(name, B * S, vocabulary - 1).reshape(B, S)
        return np.where(self.valid_keys(), others, self.padding_id)

    def token_types(self) -> npt.NDArray[np.int64] | None:
        """The types of tokens, [B, S] int64 (rule P-7); None for a layer that has none (clause E-36)."""
        if self.layer.embedding is None or self.layer.embedding.token_types is None:
            return None
        name, (B, S, _) = portable.drawn_for("token_types", self.seed), self.x_shape
        return portable.ids(name, B * S, self.layer.embedding.token_types).reshape(B, S)

    def given_x(self, dtype: np.dtype[Any]) -> Array:
        """x [B, S, d_model] in this dtype, with the situation's content of padding (M-8), or token ids [B, S]."""
        if self.layer.takes_ids:
            return self.ids()
        x = self.x()
        if (content := self.situation.input.padding) != "as_drawn":
            x = np.where(self.valid()[:, :, None], x, CONTENT[content])
        return x.astype(dtype)

    @property
    def padding_id(self) -> int | None:
        """The token id of padding, where that is how padding is given (clause M-9)."""
        return PADDING_ID if self.situation.given.padding == "ids" else None

    def memory(self) -> Floats | None:
        """The memory, [B, T, d_model], from which keys and values are made; None for self-attention (clause E-17)."""
        if not self.layer.takes_memory:
            return None
        name, drawn = portable.drawn_for("memory", self.seed), self.situation.input
        return portable.tensor(name, self.memory_shape, drawn.pattern, drawn.exponent)

    @property
    def memory_shape(self) -> tuple[int, int, int]:
        return self.situation.batch, self.situation.keys, self.layer.d_model

    @property
    def last_position(self) -> float:
        """The last of the positions of x (clause S-3)."""
        coordinates = self.coordinates()
        return self.situation.sequence - 1 if coordinates is None else float(coordinates.max())

    def coordinates(self) -> BSA | None:
        """[B or 1, S, axes] float64: where the positions of x lie; None for 0 … S − 1 (clause S-3)."""
        positions = self.situation.positions
        return None if positions is None else positions.coordinates(self.valid())

    def padding_mask(self) -> Bools | None:
        """[B, 1, 1, T], true where a key is not padding (clause M-1); None when the situation has no padding."""
        return None if self.situation.mask.padding is None else self.valid_keys()[:, None, None, :]

    def attention_mask(self) -> Bools | None:
        """[B or 1, H or 1, S, T], true where a query may attend to a key (clause M-5). Ignores padding.

        None if every query may attend to every key.
        """
        S, T = self.situation.sequence, self.situation.keys
        match self.situation.mask.attention:
            case None:
                return None
            case Causal():
                return causal_mask(S)
            case Drawn(axes=axes):
                B = self.situation.batch if "B" in axes else 1
                H = self.layer.attention.num_heads if "H" in axes else 1
                drawn = portable.integers(portable.drawn_for("mask", self.seed), B * H * S * T).reshape(B, H, S, T) >= 0
                own_position: Bools = np.arange(S)[:, None] % T == np.arange(T)
                return drawn | own_position
            case Blind(queries=queries):
                seeing = np.array([[s not in blind for s in range(S)] for blind in queries])
                return np.broadcast_to(seeing[:, None, :, None], (len(queries), 1, S, T)).copy()

    def attention_bias(self) -> Floats | None:
        """[1, H, S, S], added to the scores before the mask; None if there is no bias (clause M-7)."""
        if self.situation.mask.bias is None:
            return None
        S, H = self.situation.sequence, self.layer.attention.num_heads
        distance = np.abs(np.arange(S)[:, None] - np.arange(S)).astype(np.float64)
        return np.asarray(-np.ldexp(distance, -1 - np.arange(H)[:, None, None])[None])

    def mask(self) -> Bools | None:
        """Padding and attention mask combined, broadcastable to [B, H, S, T], true where a query may attend to a key.

        None if there is no mask.
        """
        return joined(self.padding_mask(), self.attention_mask())

    def seen(self) -> Bools | None:
        """What `mask` leaves, the layer's window too (clause E-26), and an appended key always (clause E-44),
        broadcastable to scores."""
        window = self.layer.attention.window
        limits = None if window is None else (window.left, window.right)
        seen = joined(self.mask(), within(limits, self.situation.sequence, self.situation.keys))
        return None if seen is None else with_appended(seen, self.situation.keys, appended_keys(self.layer), True)

    def valid(self) -> Bools:
        """[B, S], true at the positions of x that are not padding (clause M-2)."""
        return np.ones(self.x_shape[:2], dtype=np.bool_) if self.layer.takes_memory else self.valid_keys()

    def valid_keys(self) -> Bools:
        """[B, T], true at the positions of the keys that are not padding (clause M-2)."""
        return np.array(self.situation.valid, dtype=np.bool_).reshape(self.memory_shape[:2])

    def specified(self) -> Bools:
        """[B, S], true at rows whose output is specified and compared: valid rows (M-3) of the compared items (G-5).

        A row without any key to attend to is included if the layer specifies its weights (M-4). An item with non-finite
        padding is included if the layer's `padding_content` is `any` (M-8).
        """
        mask, rows = self.seen(), self.valid()
        if self.situation.items is not None:
            rows = rows & np.isin(np.arange(len(rows)), self.situation.items)[:, None]
        if self.situation.input.padding in ("nan", "infinity") and self.layer.padding_content == "finite":
            rows = rows & rows.all(axis=1, keepdims=True)
        if mask is None or self.layer.attention.fully_masked_row != "unspecified":
            return rows
        has_key: Bools = np.any(mask, axis=-1)  # [B or 1, H or 1, S or 1]
        specified = np.asarray(rows & np.all(has_key, axis=1))
        if self.layer.stack.layers > 1:  # from the second layer on, other rows attend to unspecified rows (E-14)
            specified = specified & (specified == rows).all(axis=1, keepdims=True)
        return specified

    def cotangent(self, kinked_rows: npt.NDArray[np.int64] = NO_ROWS) -> Floats:
        """[B, S, d_model]: the gradient of the loss with respect to the output (clauses B-1, B-2).

        It is zero on rows that are not specified and on `kinked_rows`, [n, 2] pairs of item and position.
        """
        drawn = portable.tensor(portable.drawn_for("cotangent", self.seed), self.x_shape, "symmetric", -7)
        rows = self.specified()
        rows[tuple(kinked_rows.T)] = False
        return np.where(rows[:, :, None], drawn, 0.0)

    def expected_shapes(self, check: Check) -> Mapping[str, tuple[int, ...]]:
        """Name → shape of each tensor in the answer to a check, in the order of computation."""
        shapes = self._shapes.get(check)
        if shapes is None:
            shapes = self._shapes[check] = self._shapes_of(check)
        return shapes

    @cached_property
    def _shapes(self) -> dict[Check, Mapping[str, tuple[int, ...]]]:
        """The shapes computed so far: several parts of the harness ask for each request."""
        return {}

    def _shapes_of(self, check: Check) -> Mapping[str, tuple[int, ...]]:
        if check in ("output", "refusal"):  # after a refusal the valid request is answered (J-6)
            return {"output": self.x_shape}
        if check == "stages":
            return {stage: stage_shape(stage, self.layer, self.situation) for stage in stages(self.layer)}
        if check == "weights":
            return {s: stage_shape(s, self.layer, self.situation) for s in ("attention_weights", "output")}
        if check != "gradients":
            return {}
        by_x = {} if self.layer.takes_ids else {"x": self.x_shape}
        by_memory = {"memory": self.memory_shape} if self.layer.takes_memory else {}
        return {**by_x, **by_memory, **{p.name: p.shape(self.layer) for p in parameters_of(self.layer)}}

    def compared(self, check: Check) -> dict[str, Bools]:
        """Name → boolean mask of the compared elements, in the tensor's shape.

        Gradients are compared everywhere, other tensors at specified rows (clause M-3).
        """
        shapes = self.expected_shapes(check)
        if check == "gradients":
            return {name: np.broadcast_to(np.True_, shape) for name, shape in shapes.items()}
        specified, valid, masks = self.specified(), self.valid_keys(), dict[str, Bools]()
        for name, shape in shapes.items():
            compared = valid if self.layer.takes_memory and name in OF_KEYS else specified
            rows = compared[:, :, None] if len(shape) == 3 else compared[:, None, :, None]
            if step_of(name) in SCORES:  # the score of a padded key is as unspecified as the key's row
                of_keys = with_appended(valid, valid.shape[-1], appended_keys(self.layer), True)
                rows = rows & of_keys[:, None, None, :]
            masks[name] = np.broadcast_to(rows, shape)
        return masks


def causal_mask(sequence: int, ahead: int = 0) -> Bools:
    """[1, 1, S, S], true where the key is at most `ahead` positions after the query; 0 is clause M-5's mask."""
    return np.tri(sequence, k=ahead, dtype=np.bool_)[None, None]


def within(window: tuple[int, int] | None, S: int, T: int) -> Bools | None:
    """[1, 1, S, T], true where a key is within a window about its query (clause E-26); None without a window."""
    if window is None:
        return None
    apart = np.arange(T) - np.arange(S)[:, None]
    return np.asarray((apart >= -window[0]) & (apart <= window[1]))[None, None]


def with_appended(of_keys: Array, keys: int, appended: int, value: float | bool) -> Array:
    """[…, T or 1] with `value` at as many keys behind the T as are `appended`: what is of positions is not of them."""
    if not appended:
        return of_keys
    whole = np.broadcast_to(of_keys, (*of_keys.shape[:-1], keys))
    return np.concatenate([whole, np.full((*whole.shape[:-1], appended), value, whole.dtype)], axis=-1)


def joined(*masks: Bools | None) -> Bools | None:
    """Logical and of the masks that are not None; None if all are."""
    present = [mask for mask in masks if mask is not None]
    return reduce(np.logical_and, present) if present else None


def layer_parameters(layer: Layer, exponents: dict[str, int], seed: int = 0) -> dict[str, Floats]:
    """Name → parameter of `layer`, float64, times 2**exponents[name]; the default exponent is 0 (P-5, P-6)."""
    return {name: parameter.whole() for name, parameter in drawn(layer, exponents, seed).items()}
