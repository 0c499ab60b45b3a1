"""Makes transformers' own layer of a row, says where each parameter of the specification is in it, and calls it."""

import importlib
from collections.abc import Mapping
from math import isclose
from re import fullmatch
from typing import Any

import torch
from torch import Tensor, nn

from encoder_conformance import Take
from encoder_conformance.impls.hf_encoders.rows import ROWS, Row

_ATTENTION = r"(attention|attention\.self|attention\.attn|self_attn|attn|layer\.0\.SelfAttention)\."
_NETWORK = r"(|mlp\.|ffn\.|intermediate\.|feed_forward\.|layer\.1\.DenseReluDense\.)"
MAPS = {
    "attention.query": _ATTENTION + "(query|q_lin|q_proj|q)",
    "attention.key": _ATTENTION + "(key|k_lin|k_proj|k)",
    "attention.value": _ATTENTION + "(value|v_lin|v_proj|v)",
    "attention.output": _ATTENTION + r"(output\.dense|dense|out_lin|out_proj|o_proj|o|Wo)"
    r"|attention\.output\.dense|attention\.dense",
    "feed_forward.gate": _NETWORK + "(gate_proj|wi_0)",
    "feed_forward.hidden": _NETWORK + "(dense|fc1|lin1|intermediate_dense|up_proj|wi|wi_1)|ffn",
    "feed_forward.output": _NETWORK + r"(fc2|lin2|output_dense|down_proj|wo|Wo)|output\.dense|ffn_output",
}
"""Linear map of the specification → the paths that it has in their layers, whole: one pattern matches a path."""
FUSED = {
    r"attn\.Wqkv": ("attention.query", "attention.key", "attention.value"),
    r"mlp\.Wi|mlp\.weights_in": ("feed_forward.gate", "feed_forward.hidden"),
    r"mlp\.weights_out": ("feed_forward.output",),
}
"""Path → the linear maps that it is, one after the other."""
HEAD_NORMS = {"q_norm": "attention.query_norm", "k_norm": "attention.key_norm"}
GAINS = {"layer_scale1.lambda1": "layer_scale1", "layer_scale2.lambda1": "layer_scale2", "lambda_1": "layer_scale1",
         "lambda_2": "layer_scale2"}  # fmt: skip
NORMS = ("norm1", "norm2", "attention_output_norm", "ffn_output_norm")
_TO_FLOAT32 = 1e-7
"""How far a decimal may be from its float32, as a share of it."""


class Driven(nn.Module):
    """transformers' layer, in the default dtype, with what its model makes for it: rotations and biases by position."""

    def __init__(self, name: str, layer: Mapping[str, Any], attention: str) -> None:
        """`layer`: the sizes; `attention`: eager or sdpa. Raises AttributeError for a class that is not there."""
        super().__init__()
        self.row = ROWS[name]
        folder = self.row.folder or name.replace("-", "_")
        self.models = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
        self.config = _configured(self.row, folder, layer, attention)
        cls = getattr(self.models, self.row.layer)
        arguments = {"has_relative_attention_bias": True} if self.row.layer == "T5Block" else {}
        if "layer_idx" in cls.__init__.__code__.co_varnames:
            arguments["layer_idx"] = self.row.number
        self.layer = cls(self.config, **arguments)
        if self.row.call == "mpnet":
            encoder = self.models.MPNetEncoder(self.config)
            self.relative_attention_bias = encoder.relative_attention_bias
        self.head_dim = layer["attention"].get("head_dim") or layer["d_model"] // layer["attention"]["num_heads"]

    def round_epsilon(self, epsilon: float) -> None:
        """Have the epsilon of the specification, a float32 (L-2), where theirs is the decimal that it stands for."""
        for module in self.modules():
            for name in ("eps", "variance_epsilon"):
                own = getattr(module, name, None)
                if isinstance(own, float) and isclose(own, epsilon, rel_tol=_TO_FLOAT32):
                    setattr(module, name, epsilon)

    def forward(self, x: Tensor, allowed: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """`x` [B, S, D]; `allowed` boolean, broadcastable to [B, H, S, S], true = attend; `positions` [B or 1, S]."""
        mask = self.added(x, self.seen(x, allowed))
        answer = self.layer(x, attention_mask=mask, **self.beside(x, positions))
        output: Tensor = answer[0] if isinstance(answer, tuple) else answer
        return output

    def seen(self, x: Tensor, allowed: Tensor | None) -> Tensor | None:
        """The mask, and within the layer's window, by its model's own function."""
        if not self.row.window:
            return allowed
        at = torch.arange(x.shape[1])
        near = self._window()(0, 0, at[:, None], at[None])[None, None]
        return near if allowed is None else allowed & near

    def _window(self) -> Any:
        width = self.config.sliding_window
        if self.row.window == "gemma3":
            return lambda _, __, q, k: self.models._bidirectional_window_overlay(width)(0, 0, q, k)
        if self.row.window == "t5gemma2":
            return self.models.sliding_window_mask_function(width, is_causal=False)
        return importlib.import_module("transformers.masking_utils").sliding_window_bidirectional_overlay(width)

    def added(self, x: Tensor, seen: Tensor | None) -> Tensor | None:
        """What is added to the scores, [B, 1 or H, S, S]: a form that all of their layers take, eager and sdpa."""
        B, S, _ = x.shape
        if seen is None:
            return x.new_zeros(B, 1, S, S) if self.row.needs_mask else None
        seen = seen.expand(B, seen.shape[1], S, S)
        return x.new_zeros(seen.shape).masked_fill(~seen, torch.finfo(x.dtype).min)

    def beside(self, x: Tensor, positions: Tensor | None) -> dict[str, Any]:
        """What the layer takes beside x and a mask."""
        match self.row.call:
            case "rotary":
                cos, sin = self.rotation(x, positions)
                return {"position_embeddings": tuple(torch.cat([each, each], -1) for each in (cos, sin))}
            case "roformer":
                cos, sin = self.rotation(x, positions)
                return {"sinusoidal_pos": torch.cat([sin, cos], -1)[:, None]}
            case "mpnet":
                return {"position_bias": self.models.MPNetEncoder.compute_position_bias(self, x)}
            case _:
                return {}

    def relative_position_bucket(self, *args: Any, **named: Any) -> Tensor:
        return self.models.MPNetEncoder.relative_position_bucket(*args, **named)

    def rotation(self, x: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor]:
        """cos and sin, [B or 1, S, n / 2], of their theta, computed in float64: their own tables are float32's."""
        said = getattr(self.config, "rope_parameters", None) or {}
        said = said.get(self.row.kind, said)
        theta = said.get("rope_theta") or getattr(self.config, "rope_theta", 10000.0)
        n = int(self.head_dim * said.get("partial_rotary_factor", 1.0))
        at = torch.arange(x.shape[1])[None] if positions is None else positions
        steps = theta ** (-torch.arange(0, n, 2, dtype=torch.float64) / n)
        angle = at[..., None].double() * steps
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)

    def takes(self) -> dict[str, Take]:
        """Own parameter → what it takes of the specification's. Each of theirs is one or several of those."""
        return {name: self._take(name) for name, _ in self.named_parameters()}

    def plus_one(self, name: str) -> bool:
        """Whether an own parameter is a gain less 1."""
        path = name.removeprefix("layer.").rpartition(".")[0]
        return self.row.gain_plus_one and (path in self.row.norms or path.rpartition(".")[2] in HEAD_NORMS)

    def _take(self, name: str) -> Take:
        own = name.removeprefix("layer.")
        path, _, leaf = own.rpartition(".")
        if path.endswith("relative_attention_bias"):
            return Take("attention.position_bias.table")
        if own in GAINS:
            return Take(f"{GAINS[own]}.gain")
        role = {"weight": "gain", "bias": "shift"}[leaf]
        if path in self.row.norms:
            return Take(f"{NORMS[self.row.norms.index(path)]}.{role}")
        if (last := path.rpartition(".")[2]) in HEAD_NORMS:
            return Take(f"{HEAD_NORMS[last]}.{role}")
        for pattern, maps in FUSED.items():
            if fullmatch(pattern, path):
                return Take(*(f"{each}.{leaf}" for each in maps), transpose=leaf == "weight")
        found = [each for each, paths in MAPS.items() if fullmatch(paths, path)]
        if len(found) != 1:
            raise KeyError(f"{name} is {found or 'no linear map of the specification'}")
        return Take(f"{found[0]}.{leaf}", transpose=leaf == "weight")


def _configured(row: Row, folder: str, layer: Mapping[str, Any], attention: str) -> Any:
    """Their configuration: the layer's sizes, the row's choices, and what it says by default."""
    own = layer["attention"]
    heads, size = own["num_heads"], own.get("head_dim") or layer["d_model"] // own["num_heads"]
    of_layer = {"num_heads": heads, "head_dim": size, "mlp_ratio": layer["feed_forward"]["d_ff"] // layer["d_model"]}
    sizes = dict(zip(row.sizes, (layer["d_model"], heads, layer["feed_forward"]["d_ff"]), strict=False))
    sizes |= dict(zip(row.wide, (size, own.get("kv_heads") or heads), strict=False))
    choices = {
        key: of_layer.get(value, value) if isinstance(value, str) else value for key, value in row.choices.items()
    }
    cls = getattr(importlib.import_module(f"transformers.models.{folder}.configuration_{folder}"), row.config)
    return cls(**sizes, **choices, attn_implementation=attention)
