"""What strangers' files are held to: the layer that is inferred, the parameters bit for bit, the proof."""

from pathlib import Path
from typing import Any

import numpy as np

from encoder_conformance import Masks, RunRequest
from encoder_conformance.readers.onnx_file.adapter import OnnxFile
from encoder_conformance.readers.onnx_file.inspection import Inspection, inspect

Array = np.ndarray[Any, Any]


def looked_into(path: Path, mask: str | None = None) -> Inspection:
    """The file inspected, which finds no error in it."""
    seen = inspect(path, mask)
    assert not seen.findings.errors(), seen.findings.found
    return seen


def fact(seen: Inspection, key: str) -> Any:
    return next(fact["value"] for fact in seen.description()["facts"] if fact["key"] == key)


def assert_holds(seen: Inspection, parameters: dict[str, Array], **choices: Any) -> None:
    """`choices`: keys of the layer language with `_` for `.`, as in norm_placement. The parameters are the framework's,
    in the specification's names and orientation."""
    layer = seen.description()["layer"]
    for key, due in choices.items():
        part, _, name = key.partition("__")
        assert (layer[part][name] if name else layer[part]) == due, key
    held = seen.parameters()
    assert held.keys() == parameters.keys()
    for name, value in parameters.items():
        assert np.array_equal(held[name], value), name
    assert fact(seen, "proved")


def adapter(path: Path, **choices: str) -> tuple[OnnxFile, dict[str, Any], dict[str, Array]]:
    """The file as an implementation, built with its own parameters: the adapter, the layer, the parameters."""
    started = OnnxFile()
    started.choices = {"model": str(path), "runtime": "onnxruntime", "level": "all", **choices}
    started.start("cpu", 1)
    reply, own = started.other({"op": "inspect", "path": str(path), "mask": None}, {})
    layer = reply["description"]["layer"]
    held = started.build(layer, own, "float32")
    assert all(np.array_equal(held[name], value) for name, value in own.items())
    return started, layer, own


def assert_hides_padding(started: OnnxFile, d_model: int) -> None:
    """Whatever stands at a padded position, the others do not see it, at sizes that no trace was made at."""
    x = np.random.default_rng(7).normal(size=(4, 9, d_model)).astype(np.float32)
    valid = np.arange(9) < np.array([9, 6, 9, 2])[:, None]
    other = np.where(valid[..., None], x, np.float32(0.5))
    assert np.array_equal(
        started.output(x, Masks(valid, None), RunRequest())[valid],
        started.output(other, Masks(valid, None), RunRequest())[valid],
    )
    assert not np.allclose(
        started.output(x, Masks(None, None), RunRequest())[1, :6],
        started.output(x, Masks(valid, None), RunRequest())[1, :6],
    )


def torch_layer(state: dict[str, Array], prefix: str = "", into: str = "") -> dict[str, Array]:
    """The state of a torch.nn.TransformerEncoderLayer in the specification's names; `into` is put before them."""
    state = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    found = {}
    for kind in ("weight", "bias"):
        query_key_value = np.split(state[f"self_attn.in_proj_{kind}"], 3)
        found |= {
            f"attention.{name}.{kind}": v for name, v in zip(("query", "key", "value"), query_key_value, strict=True)
        }
        found[f"attention.output.{kind}"] = state[f"self_attn.out_proj.{kind}"]
        found[f"feed_forward.hidden.{kind}"] = state[f"linear1.{kind}"]
        found[f"feed_forward.output.{kind}"] = state[f"linear2.{kind}"]
    for norm in ("norm1", "norm2"):
        found |= {f"{norm}.gain": state[f"{norm}.weight"], f"{norm}.shift": state[f"{norm}.bias"]}
    return {into + name: value.T for name, value in found.items()}
