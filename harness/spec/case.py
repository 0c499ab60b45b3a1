"""A case: one layer in one situation, with the tensors that an implementation is given (clauses S-*)."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
import numpy.typing as npt

from encoder_conformance import portable
from encoder_conformance.portable import Floats
from encoder_conformance.spec.drawn import drawn
from encoder_conformance.spec.layer import RECOMMENDED_AT_MOST, Layer
from encoder_conformance.spec.level import Level
from encoder_conformance.spec.masking import Blind, Causal, Drawn
from encoder_conformance.spec.parameters import parameters_of
from encoder_conformance.spec.situation import WITH_GOLDEN, Check, Situation
from encoder_conformance.spec.stages import OF_KEYS, stage_shape, stages

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CaseParameters:
    """Parameters that a layer holds already, float64 in the specification's names and shapes: an ONNX file's own."""

    tensors: Mapping[str, Floats] = field(compare=False)
    digest: str

    @classmethod
    def of(cls, tensors: Mapping[str, npt.NDArray[np.floating]]) -> "CaseParameters":
        """With what tells them from any others."""
        exact = {name: np.ascontiguousarray(tensors[name], dtype=np.float64) for name in sorted(tensors)}
        digest = hashlib.sha256()
        for name, value in exact.items():
            digest.update(f"{name} {value.shape} ".encode() + value.tobytes())
        return cls(exact, digest.hexdigest())


@dataclass(frozen=True)
class Case:
    """`seed` is the draw of x, parameters and cotangent (rule P-6): 0 is the one that the goldens were frozen for.

    `held` are parameters that are not drawn; then there is no frozen golden. `in_core`: `specs/core.yaml` lists it.
    """

    layer: Layer
    situation: Situation
    seed: int = 0
    held: CaseParameters | None = None
    in_core: bool = False

    @property
    def id(self) -> str:
        return f"{self.layer.layer}/{self.situation.situation}"

    @property
    def numbers_from(self) -> tuple[int, str]:
        """What x and the parameters come from, beside the names: cases with the same have the same numbers."""
        return self.seed, self.held.digest if self.held else ""

    @property
    def golden_id(self) -> str:
        """The case whose goldens hold for this one: itself, unless the situation says that it equals another."""
        return f"{self.layer.layer}/{self.situation.equals or self.situation.situation}"

    @property
    def has_golden(self) -> bool:
        """Whether a file of its own says what it gives."""
        return self.situation.equals is None and not self.needs_no_golden

    @property
    def needs_no_golden(self) -> bool:
        """Whether nothing that it asks is judged by a golden, its own or another's: an invariant, say."""
        return self.situation.equals is None and WITH_GOLDEN.isdisjoint(self.situation.checks)

    def as_frozen(self) -> "Case":
        """The same with its padding as drawn: goldens keep what a right layer gives whatever stands there (M-8)."""
        drawn = self.situation.input.model_copy(update={"padding": "as_drawn"})
        return replace(self, situation=self.situation.model_copy(update={"input": drawn}))

    @property
    def level(self) -> Level:
        """`core` where it is listed as that, or its own."""
        return "core" if self.in_core else self.own_level

    @property
    def own_level(self) -> Level:
        """What it would be if no core listed it: its situation's, or weaker if its layer's family says so (V-9)."""
        required = self.situation.level == "required"
        return "recommended" if required and self.layer.family in RECOMMENDED_AT_MOST else self.situation.level

    @property
    def is_required(self) -> bool:
        """Whether an implementation has to pass it where it applies; every case of the core is one."""
        return self.own_level == "required"

    @property
    def clauses(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.layer.clauses, *self.situation.clauses)))

    @property
    def x_shape(self) -> tuple[int, int, int]:
        """Of x, and of the output also where token ids are given in place of x."""
        return self.situation.batch, self.situation.sequence, self.layer.d_model

    def parameters(self) -> dict[str, Floats]:
        """Every parameter: held, or drawn from its own name and moved into the situation's numeric regime (P-5)."""
        if self.held is not None:
            return dict(self.held.tensors)
        return layer_parameters(self.layer, self.situation.parameter_exponents, self.seed)

    def x(self) -> Floats:
        """The input, [B, S, d_model]."""
        name, drawn = portable.drawn_for("x", self.seed), self.situation.input
        return portable.tensor(name, self.x_shape, drawn.pattern, drawn.exponent)

    def ids(self) -> npt.NDArray[np.int64]:
        """The token ids that a layer with an embedding is given in place of x, [B, S] (rule P-7)."""
        assert self.layer.embedding is not None
        name, (B, S, _) = portable.drawn_for("ids", self.seed), self.x_shape
        return portable.ids(name, B * S, self.layer.embedding.vocabulary).reshape(B, S)

    def memory(self) -> Floats | None:
        """The second input, [B, T, d_model], where the layer takes one (clause E-17)."""
        if not self.layer.takes_memory:
            return None
        name, drawn = portable.drawn_for("memory", self.seed), self.situation.input
        return portable.tensor(name, self.memory_shape, drawn.pattern, drawn.exponent)

    @property
    def memory_shape(self) -> tuple[int, int, int]:
        return self.situation.batch, self.situation.keys, self.layer.d_model

    def padding_mask(self) -> Bools | None:
        """[B, 1, 1, T], true where a key is not padding (clause M-1); None when the situation has no padding."""
        return None if self.situation.mask.padding is None else self.valid_keys()[:, None, None, :]

    def attention_mask(self) -> Bools | None:
        """[B or 1, H or 1, S, T], true where query may attend to key, padding aside (clause M-5); None for all."""
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
                own: Bools = np.arange(S)[:, None] % T == np.arange(T)
                return drawn | own
            case Blind(queries=queries):
                seeing = np.array([[s not in blind for s in range(S)] for blind in queries])
                return np.broadcast_to(seeing[:, None, :, None], (len(queries), 1, S, T)).copy()

    def attention_bias(self) -> Floats | None:
        """[1, H, S, S], added to the scores before the mask; None for nothing (clause M-7)."""
        if self.situation.mask.bias is None:
            return None
        S, H = self.situation.sequence, self.layer.attention.num_heads
        distance = np.abs(np.arange(S)[:, None] - np.arange(S)).astype(np.float64)
        return np.asarray(-np.ldexp(distance, -1 - np.arange(H)[:, None, None])[None])

    def mask(self) -> Bools | None:
        """Both masks together, broadcastable to [B, H, S, T], true where a key may be attended to; None for no mask."""
        return joined(self.padding_mask(), self.attention_mask())

    def valid(self) -> Bools:
        """[B, S], true at the positions of x that hold data and not padding (clause M-2)."""
        return np.ones(self.x_shape[:2], dtype=np.bool_) if self.layer.takes_memory else self.valid_keys()

    def valid_keys(self) -> Bools:
        """[B, T], true at the positions of what keys are made of that hold data and not padding (clause M-2)."""
        return np.array(self.situation.valid, dtype=np.bool_).reshape(self.memory_shape[:2])

    def specified(self) -> Bools:
        """[B, S], true at the positions whose output the layer specifies and the situation compares: the valid ones
        (M-3), of the items that it names (G-5).

        Those that have no key to attend to are among them if the layer says what they give (M-4), and those of an item
        whose padding is not finite if the layer bears that (M-8).
        """
        mask, rows = self.mask(), self.valid()
        if self.situation.items is not None:
            rows = rows & np.isin(np.arange(len(rows)), self.situation.items)[:, None]
        if self.situation.input.padding in ("nan", "infinity") and self.layer.padding_content == "finite":
            rows = rows & rows.all(axis=1, keepdims=True)
        if mask is None or self.layer.attention.fully_masked_row != "unspecified":
            return rows
        has_key: Bools = np.any(mask, axis=-1)  # [B or 1, H or 1, S or 1]
        said = np.asarray(rows & np.all(has_key, axis=1))
        if self.layer.stack.layers > 1:  # from the second layer on, others attend to what nobody specifies (E-14)
            said = said & (said == rows).all(axis=1, keepdims=True)
        return said

    def cotangent(self, kinked_rows: npt.NDArray[np.int64]) -> Floats:
        """[B, S, d_model]: the gradient of the loss by the output (clauses B-1, B-2).

        Zero on rows that are not specified, and on `kinked_rows`, [n, 2] pairs of item and position.
        """
        drawn = portable.tensor(portable.drawn_for("cotangent", self.seed), self.x_shape, "symmetric", -7)
        rows = self.specified()
        rows[tuple(kinked_rows.T)] = False
        return np.where(rows[:, :, None], drawn, 0.0)

    def expected_shapes(self, check: Check) -> dict[str, tuple[int, ...]]:
        """The tensors that a check is answered with, and their shapes, in the order in which they are computed."""
        if check in ("output", "refusal"):  # a refusal is followed by what is right (J-6)
            return {"output": self.x_shape}
        if check == "stages":
            return {stage: stage_shape(stage, self.layer, self.situation) for stage in stages(self.layer)}
        if check == "weights":
            return {s: stage_shape(s, self.layer, self.situation) for s in ("attention_weights", "output")}
        if check != "gradients":
            return {}
        by_x = {"x": self.x_shape} if self.layer.embedding is None else {}
        by_memory = {"memory": self.memory_shape} if self.layer.takes_memory else {}
        return {**by_x, **by_memory, **{p.name: p.shape(self.layer) for p in parameters_of(self.layer)}}

    def compared(self, check: Check) -> dict[str, Bools]:
        """Where each tensor of a check is compared, in its own shape: gradients everywhere, stages at valid rows
        (clause M-3)."""
        shapes = self.expected_shapes(check)
        if check == "gradients":
            return {name: np.broadcast_to(np.True_, shape) for name, shape in shapes.items()}
        specified, valid, found = self.specified(), self.valid_keys(), dict[str, Bools]()
        for name, shape in shapes.items():
            compared = valid if self.layer.takes_memory and name in OF_KEYS else specified
            rows = compared[:, :, None] if len(shape) == 3 else compared[:, None, :, None]
            if name == "attention_scores":  # what a key at a padded position holds is as unspecified as its row
                rows = rows & valid[:, None, None, :]
            found[name] = np.broadcast_to(rows, shape)
        return found


def causal_mask(sequence: int, ahead: int = 0) -> Bools:
    """[1, 1, S, S], true where a query comes no more than `ahead` positions before the key (clause M-5: 0)."""
    return np.tri(sequence, k=ahead, dtype=np.bool_)[None, None]


def joined(*masks: Bools | None) -> Bools | None:
    """Masks together: true where each of those that there are is; None where there is none."""
    there = [mask for mask in masks if mask is not None]
    return reduce(np.logical_and, there) if there else None


def layer_parameters(layer: Layer, exponents: dict[str, int], seed: int = 0) -> dict[str, Floats]:
    """The parameters of `layer`, each times 2**exponents[name], 0 where not named (rules P-5 and P-6)."""
    return {name: each.whole() for name, each in drawn(layer, exponents, seed).items()}
