"""Exports every published layer of transformers, validates each file, and writes docs/published_files.json.

python -m benchmarks.onnx_files.published_layers                     what is not in docs/published_files.json yet
python -m benchmarks.onnx_files.published_layers --only t5 --anew    the files of some layers, anew
python -m benchmarks.onnx_files.published_layers --layers 2 --opsets 18  of two layers in a row alone, in that opset

A file is of one layer or of two, by torch's exporter, in opset 18; in opset 23, whose Attention, RMSNormalization and
RotaryEmbedding are operators, where the exporter then writes other ones. It passes where `conform validate` comes to
status 0 without having been told anything, and the layer that it inferred is the published one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from benchmarks.onnx_files.exporters import AXES, quiet
from encoder_conformance.impls.hf_encoders.driving import Driven
from encoder_conformance.impls.hf_encoders.rows import ROWS
from encoder_conformance.oracle.layer_differences import differences
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import published_layers

KEPT = Path(__file__).resolve().parents[2] / "docs" / "published_files.json"
OPSETS = (18, 23)
EAGER = ("T5GemmaEncoderLayer", "T5Block", "UMT5Block")
"""Layers that are exported as they are computed eagerly: sdpa cannot cap scores, and of T5 the exporter makes a view of
strides that it does not have."""
SHARED_BIAS = ("T5Block", "MPNetLayer")
"""Layers whose stack has one table of positions, which its first layer holds (E-34)."""
VERDICTS = {0: "passes", 1: "fails", 2: "refused"}
Record = dict[str, Any]


class Exported(nn.Module):
    """Layers of transformers, one after the other, of x [B, S, D] and a mask [B, S], true to attend."""

    def __init__(self, name: str, layers: int) -> None:
        super().__init__()
        described = published_layers()[name].model_dump(mode="json")
        attention = "eager" if ROWS[name].layer in EAGER else "sdpa"
        self.layers = nn.ModuleList(Driven(name, described, attention) for _ in range(layers))
        if ROWS[name].layer == "MPNetLayer":
            for each in self.layers:
                each.relative_attention_bias = self.layers[0].relative_attention_bias

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        allowed, bias = mask[:, None, None, :], None
        for driven in self.layers:
            if driven.row.layer == "T5Block":  # the first one's table, of which it returns the bias (E-34)
                x, bias = driven.layer(x, attention_mask=driven.added(x, allowed), position_bias=bias)[:2]
            else:
                x = driven(x, allowed)
        return x


def exported(name: str, layers: int, opset: int, path: Path) -> Path:
    """By `torch.onnx.export` with dynamo, batch and sequence free."""
    module = _drawn(Exported(name, layers))
    d_model = published_layers()[name].d_model
    given = torch.randn(2, 7, d_model), torch.ones(2, 7, dtype=torch.bool)
    free = {axis: torch.export.Dim(size) for axis, size in AXES.items()}
    torch.onnx.export(
        module, given, path, opset_version=opset, dynamo=True, verbose=False, dynamic_shapes=(free, free),
        input_names=["x", "mask"], output_names=["y"], external_data=False,
    )  # fmt: skip
    return path


def _drawn(module: Exported) -> Exported:
    """With random numbers in every parameter: gains about 1, or about 0 where the layer adds 1."""
    torch.manual_seed(0)
    with torch.no_grad():
        for driven in module.layers:
            takes = driven.takes()
            for name, parameter in driven.named_parameters():
                is_gain = takes[name].sources[0].endswith(".gain") and not driven.plus_one(name)
                parameter.normal_(mean=1.0 if is_gain else 0.0, std=0.2)
    return module.eval()


def due(name: str, layers: int) -> Layer:
    """The layer that a file holds: the published one, or a stack of them."""
    layer = published_layers()[name]
    shared = layers > 1 and ROWS[name].layer in SHARED_BIAS
    stack = layer.stack.model_copy(update={"layers": layers, "shared_position_bias": shared})
    return layer.model_copy(update={"stack": stack})


def record(name: str, layers: int, opset: int, path: Path) -> Record:
    """What `conform validate` says of a file."""
    conform, out = Path(sys.executable).with_name("conform"), path.parent / "out"
    command = [conform, "validate", path, "--runtime", "onnxruntime", "--out", out, "--json"]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    found = json.loads(ended.stdout)
    verdict, sentence = VERDICTS[ended.returncode], _sentence(found)
    if verdict == "passes" and (other := _other(found, due(name, layers))):
        verdict, sentence = "fails", f"called right as something else: {other}"
    ratios = [each["rms"] for each in found["runtimes"] if each["rms"] is not None]
    return {
        "name": _file_name(name, layers, opset),
        "layer": name,
        "verdict": verdict,
        "sigma": float(f"{max(ratios):.3g}") if ratios else None,
        "sentence": sentence,
        "exporter": f"torch.onnx.export {torch.__version__.partition('+')[0]}, dynamo",
        "opset": opset,
        "layers": layers,
    }


def _sentence(found: Record) -> str:
    """The first error, or what it was judged as."""
    errors = [each["message"] for each in found["findings"] if each["severity"] == "error"]
    return errors[0] if errors else "inferred and proved"


def _other(found: Record, stated: Layer) -> str:
    """How the layer that was inferred differs from the published one; "" where it does not."""
    read = Layer.model_validate_json(json.dumps(found["layer"]))
    found = [each for each in differences(read, stated) if each[1] != "unspecified"]
    return "; ".join(f"{key} is {own}, and {expected} in it" for key, expected, own in found)


def _file_name(name: str, layers: int, opset: int) -> str:
    return f"{name}, {'one layer' if layers == 1 else 'two layers'}, opset {opset}"


def _operators(path: Path) -> list[str]:
    model = onnx.load(path, load_external_data=False)
    return [node.op_type for node in model.graph.node]


def files(options: argparse.Namespace, known: set[str], folder: Path) -> Iterator[Record]:
    """The record of each file that is not `known`; one of opset 23 alone where its operators are other ones."""
    for name in options.only:
        for layers in options.layers:
            seen: list[list[str]] = []
            for opset in options.opsets:
                if _file_name(name, layers, opset) in known:
                    continue
                own = folder / f"{name}-{layers}-{opset}"
                own.mkdir()
                path = exported(name, layers, opset, own / "model.onnx")
                if (operators := _operators(path)) not in seen:
                    seen.append(operators)
                    yield record(name, layers, opset, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(ROWS), choices=list(ROWS), metavar="LAYER")
    parser.add_argument("--layers", nargs="*", type=int, default=[1, 2], choices=[1, 2])
    parser.add_argument("--opsets", nargs="*", type=int, default=OPSETS, choices=OPSETS)
    parser.add_argument("--anew", action="store_true")
    options = parser.parse_args()
    quiet()
    kept: dict[str, Record] = {each["name"]: each for each in json.loads(KEPT.read_text())} if KEPT.exists() else {}
    known = {name for name, each in kept.items() if not (options.anew and each["layer"] in options.only)}
    with tempfile.TemporaryDirectory() as folder:
        for found in files(options, known, Path(folder)):
            kept[found["name"]] = found
            print(f"{found['name']}: {found['verdict']}, {found['sentence']}", flush=True)
            places = list(ROWS)
            rows = sorted(kept.values(), key=lambda each: (places.index(each["layer"]), each["layers"], each["opset"]))
            KEPT.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
