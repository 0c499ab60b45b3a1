"""Drives Lucid's nn.TransformerEncoderLayer, on the CPU, where its tensors are NumPy's."""

from importlib.metadata import version
from typing import Any

import lucid
import lucid.nn.functional as F
import numpy as np
from lucid import nn

from encoder_conformance import Adapter, Array, Environment, Masks, ParameterMap, RunRequest, Take, Tensors, serve

LINEAR = {
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.out_proj": "attention.output",
    "linear1": "feed_forward.hidden",
    "linear2": "feed_forward.output",
}
PARAMETERS = ParameterMap(
    {f"{own}.weight": Take(f"{name}.weight", transpose=True) for own, name in LINEAR.items()}
    | {f"{own}.bias": Take(f"{name}.bias") for own, name in LINEAR.items()}
    | {f"{norm}.weight": Take(f"{norm}.gain") for norm in ("norm1", "norm2")}
    | {f"{norm}.bias": Take(f"{norm}.shift") for norm in ("norm1", "norm2")}
)
ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": F.gelu}
SHOWN = {
    "norm1": ("norm1",),
    "query": ("self_attn", "q_proj"),
    "key": ("self_attn", "k_proj"),
    "value": ("self_attn", "v_proj"),
    "attention_output": ("self_attn", "out_proj"),
    "norm2": ("norm2",),
    "ffn_hidden": ("linear1",),
    "ffn_output": ("linear2",),
}
"""Stage → the submodule whose output it is."""
BARRED = -1e12
"""What Lucid itself adds to the scores of padding."""


class Lucid(Adapter):
    def start(self, device: str, threads: int) -> Environment:
        return Environment({name: version(name) for name in ("lucid-dl", "mlx", "numpy")})

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.heads = layer["attention"]["num_heads"]
        activation = layer["feed_forward"]["activation"]
        self.module = nn.TransformerEncoderLayer(
            layer["d_model"],
            self.heads,
            layer["feed_forward"]["d_ff"],
            layer["dropout"]["attention_weights"],  # the one rate that is of any consequence in mode eval
            ACTIVATIONS[activation],
            layer["norm"]["epsilon"],
            norm_first=layer["norm"]["placement"] == "pre",
        )
        self.module.load_state_dict(PARAMETERS.to_own(parameters, layer))
        return PARAMETERS.to_spec(self.module.state_dict())

    def output(self, x: Array, masks: Masks, run: RunRequest) -> Array:
        self.module.eval()
        lucid.random.seed(run.seed)
        mask, padding = self.masks(masks, x.dtype)
        with lucid.no_grad():
            return self.module(lucid.tensor(x), mask, padding, masks.causal and mask is padding is None).numpy()

    def stages(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        seen: Tensors = {}
        removals = []
        for stage, path in SHOWN.items():
            module = self.module
            for name in path:
                module = getattr(module, name)
            keep = lambda _, taken, given, stage=stage: seen.update({stage: given.numpy()})  # noqa: E731
            removals.append(module.register_forward_hook(keep))
        output = self.output(x, masks, run)
        for remove in removals:
            remove()
        return {**seen, "output": output}

    def masks(self, masks: Masks, dtype: Any) -> tuple[Any, Any]:
        """src_mask, added to the scores, and src_key_padding_mask [B, S], 1 for padding; a causal mask by itself goes
        as the flag, which takes no other mask beside it."""
        valid = masks.valid()
        padding = None if valid is None else lucid.tensor((~valid).astype(dtype))
        flagged = masks.causal and valid is None
        attention = Masks(None, masks.attention, None, masks.encoding, masks.causal and not flagged, masks.sequence)
        allowed, bias = attention.joined(self.heads), masks.added(self.heads)
        if allowed is None and bias is None:
            return None, padding
        added = np.where(True if allowed is None else allowed, 0.0 if bias is None else bias, BARRED)
        return lucid.tensor(np.asarray(added, dtype)), padding


if __name__ == "__main__":
    serve(Lucid())
