"""Each layer of transformers as a file of torch's exporter, judged by `conform validate` in the runtimes here."""

import json
import logging
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.zoo.agreement import EAGER_ALONE
from encoder_conformance.impls.hf_encoders.driving import Driven
from encoder_conformance.spec.load import published_layers

_CONFORM = Path(sys.executable).with_name("conform")
RUNTIMES = ("onnxruntime", "openvino")
PACKAGES = ("torch", "transformers", "onnx", "onnxscript", *RUNTIMES)


class Padded(nn.Module):
    """A layer of x and a mask of padding, [B, S] boolean, true where a key may be attended to."""

    def __init__(self, layer: Driven) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.layer(x, mask[:, None, None, :])


def judged(name: str) -> dict[str, Any]:
    """The row of a published layer."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        return _row(name, Path(folder))


def versions() -> dict[str, str]:
    return {name: found for name in PACKAGES if (found := _version(name))}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _row(name: str, folder: Path) -> dict[str, Any]:
    path = folder / f"{name}.onnx"
    try:
        exported(name, path)
    except Exception as error:
        return {"verdict": "not exported", "why": _first_line(error)}
    asked = [str(_CONFORM), "validate", str(path), "--layer", name, "--json", "--out", str(folder)]
    runtimes = [word for runtime in RUNTIMES if _version(runtime) for word in ("--runtime", runtime)]
    ended = subprocess.run([*asked, *runtimes], capture_output=True, text=True, check=False)
    if not ended.stdout:
        return {"verdict": "refused", "why": " ".join(ended.stderr.split())[:300]}
    return _of_validation(json.loads(ended.stdout))


def _first_line(error: BaseException) -> str:
    """Of what an error comes from: exporters wrap it in pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"


def exported(name: str, path: Path) -> Path:
    """Write the file of a published layer, with parameters of its own."""
    layer = published_layers()[name].model_dump(mode="json")
    torch.manual_seed(0)
    module = Padded(Driven(name, layer, "eager" if name in EAGER_ALONE else "sdpa")).eval()
    for parameter in module.parameters():  # tables and gains that are made as 0 or 1 would show nothing
        nn.init.normal_(parameter, std=0.2)
    module.requires_grad_(False)  # docs/findings/onnx_pytorch-mask-with-a-gradient.py
    given = torch.randn(2, 7, layer["d_model"]), torch.ones(2, 7, dtype=torch.bool)
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    torch.onnx.export(
        module, given, path, dynamo=True, verbose=False, dynamic_shapes=(free, free), input_names=["x", "mask"],
        output_names=["y"], external_data=False,
    )  # fmt: skip
    return path


def _of_validation(found: Mapping[str, Any]) -> dict[str, Any]:
    errors = [each["message"] for each in found["findings"] if each["severity"] == "error"]
    if not found["judged"]:
        return {"verdict": "refused", "why": " ".join(errors)[:300]}
    row: dict[str, Any] = {"verdict": found["conclusion"], "runtimes": {}}
    for each in found["runtimes"]:
        if each["absent"] is None:
            row["runtimes"][each["runtime"]] = _worse(row["runtimes"].get(each["runtime"]), each)
    return row | ({"why": " ".join(errors)[:300]} if errors else {})


def _worse(row: dict[str, Any] | None, level: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a runtime, over its levels of optimisation."""
    sigma = max((each["sigma"] for each in (row,) if each and each["sigma"] is not None), default=0.0)
    return {
        "passed": level["passed"] + (row["passed"] if row else 0),
        "applicable": level["applicable"] + (row["applicable"] if row else 0),
        "sigma": None if level["rms"] is None else round(max(sigma, level["rms"]), 2),
    }
