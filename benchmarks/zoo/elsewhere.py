"""Layers of other libraries (`theirs.py`), each judged by `conform check` as what its library says that it is."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import published_layers
from encoder_conformance.spec.outcome import EXPECTED
from encoder_conformance.spec.plain import whole

SIZES = {"d": 48, "heads": 4, "wide": 192}
_THEIRS = Path(__file__).with_name("theirs.py")
_CONFORM = Path(sys.executable).with_name("conform")
_FINAL_NORM = {"family": "stacks", "stack": {"final_norm": True}}
_TIMEOUT = 900


@dataclass(frozen=True)
class Row:
    """A layer of `theirs.py`: its package, where it is written, the published layer that it is like, and what it has
    otherwise than that, by key."""

    package: str
    source: str
    like: str
    keys: Mapping[str, Any] = field(default_factory=dict)

    @property
    def layer(self) -> Layer:
        """At `SIZES`, unless it has its own."""
        keys = whole(published_layers()[self.like].with_decimal_epsilon)
        d, heads, wide = SIZES.values()
        sizes = {"d_model": d, "attention": {"num_heads": heads}, "feed_forward": {"d_ff": wide}}
        return Layer.model_validate(_merged(_merged(keys, sizes), {"layer": "theirs", "source": None, **self.keys}))


def _merged(keys: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return dict(keys) | {
        key: _merged(keys[key], value) if isinstance(value, Mapping) and isinstance(keys.get(key), Mapping) else value
        for key, value in other.items()
    }


_EPSILON_6 = {"norm": {"epsilon": 1e-6}}
_HEAD_NORMS = {"qk_norm": {"kind": "layer_norm", "over": "head", "shift": True}}
_ROPE = {"theta": 10000.0, "pairing": "interleaved"}
_X = {
    "norm": {"epsilon": 1e-12},
    "feed_forward": {"bias": True, "output_bias": False},
    "attention": {"rope": _ROPE, "kv_heads": None, "head_dim": None},
    **_FINAL_NORM,
}
ROWS: dict[str, Row] = {
    "torchvision_vit": Row("torchvision", "torchvision/models/vision_transformer.py", "vit", _EPSILON_6),
    "timm_vit": Row("timm", "timm/models/vision_transformer.py", "vit", _EPSILON_6),
    "timm_vit_with_head_norms": Row(
        "timm", "timm/models/vision_transformer.py", "vit", {**_EPSILON_6, "attention": _HEAD_NORMS}
    ),
    "timm_dinov2": Row("timm", "timm/models/vision_transformer.py", "dinov2"),
    "timm_dinov2_giant": Row("timm", "timm/models/vision_transformer.py", "dinov2-giant"),
    "open_clip": Row("open_clip_torch", "open_clip/transformer.py", "clip", {"feed_forward": {"activation": "gelu"}}),
    "open_clip_of_openai": Row("open_clip_torch", "open_clip/transformer.py", "clip"),
    "openai_clip": Row("openai-clip", "clip/model.py", "clip"),
    "openai_whisper": Row("openai-whisper", "whisper/model.py", "whisper"),
    "fair_esm2": Row("fair-esm", "esm/modules.py", "esm"),
    "evolutionaryscale_esmc": Row(
        "esm", "esm/layers/blocks.py", "esmc", {"residual_scale": 2.0, "feed_forward": {"d_ff": 256}}
    ),
    "vit_pytorch": Row(
        "vit-pytorch", "vit_pytorch/vit.py", "vit-unbiased", {"norm": {"epsilon": 1e-5}, **_FINAL_NORM}
    ),
    "kornia_vit": Row("kornia", "kornia/models/vit.py", "vit", _EPSILON_6),
    "monai_vit": Row(
        "monai", "monai/networks/blocks/transformerblock.py", "vit-unbiased", {"norm": {"epsilon": 1e-5}}
    ),
    "x_transformers_rope": Row("x-transformers", "x_transformers/x_transformers.py", "eurobert", _X),
    "keras_hub_encoder": Row(
        "keras-hub", "keras_hub/src/layers/modeling/transformer_encoder.py", "vit", {"norm": {"epsilon": 1e-5}}
    ),
}  # fmt: skip
"""Function of `theirs.py` → its row."""


def here() -> list[str]:
    """The rows of the packages that are here. Two packages called `esm` cannot be installed beside each other."""
    return [name for name, row in ROWS.items() if row.package in versions()]


@cache
def versions() -> dict[str, str]:
    return dict(_installed())


def _installed() -> Iterator[tuple[str, str]]:
    for package in ("torch", *dict.fromkeys(row.package for row in ROWS.values())):
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue


def checked(name: str) -> dict[str, Any]:
    """What `conform check` says of it."""
    row = ROWS[name]
    with tempfile.TemporaryDirectory() as folder:
        layer = Path(folder) / "theirs.yaml"
        layer.write_text(yaml.safe_dump(whole(row.layer)), encoding="utf-8")
        sizes = [word for key, size in SIZES.items() for word in ("--arg", f"{key}={size}")]
        asked = [str(_CONFORM), "check", f"{_THEIRS}:{name}", *sizes, "--layer", str(layer), "--json", "--out", folder]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "KERAS_BACKEND": "tensorflow"}
        ended = subprocess.run(
            asked, capture_output=True, text=True, check=False, timeout=_TIMEOUT, env=environment, cwd=folder
        )
    return _of_check(json.loads(ended.stdout)) if ended.stdout else {"verdict": "refused", "why": _said(ended.stderr)}


def _said(text: str) -> str:
    return " ".join(text.split())[-300:]


def _of_check(found: Mapping[str, Any]) -> dict[str, Any]:
    errors = [each["message"] for part in found["parts"] for each in part["findings"] if each["severity"] == "error"]
    records = [record for part in found["parts"] for record in part["records"]]
    judged = [record for record in records if record["outcome"] not in ("unsupported", "skipped")]
    if not judged:
        return {"verdict": "refused", "why": " ".join(errors)[:300]}
    wrong = [record for record in judged if record["outcome"] not in {each.value for each in EXPECTED}]
    sigma = max((record["rms"] for record in judged if record["rms"] is not None), default=None)
    row = {
        "verdict": "fails" if wrong or errors else "passes",
        "checks": len(judged),
        "sigma": sigma and round(sigma, 2),
    }
    return row | ({"why": " ".join(errors or [wrong[0]["message"]])[:300]} if errors or wrong else {})
