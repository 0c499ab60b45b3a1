"""Asks a module in its framework's mixed precision: its answers are those in float32, within the noise of bfloat16."""

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from encoder_conformance import Masks
from encoder_conformance.oracle.inputs import LayerInputs
from encoder_conformance.oracle.measured import sampled_conditions
from encoder_conformance.protocol.module_description import OtherAnswer
from encoder_conformance.readers.module_target.feeding import module_feeds
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.proving import Bench
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.layer.verification import exact_stages, judge_whole_tensors, runs_of
from encoder_conformance.spec.axes import BSD, Array
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.layer import Layer

_FORMAT = FORMATS["float32"].computed_in(FORMATS["bfloat16"])


def answers_in_mixed_precision(bench: Bench, layer: Layer, parameters: dict[str, Array]) -> Iterator[OtherAnswer]:
    """The ways in which it answers there what no rounding explains. `bench`: a copy in float32, which has the
    `parameters` of the layer."""
    for way, module in bench.module.mixed_precision().items():
        answers = (_answer(bench, module, way, layer, parameters, valid) for valid in _valid(bench))
        yield from list(filter(None, answers))[:1]


def _valid(bench: Bench) -> Iterator[Array]:
    """Which positions are there, [B, S]: all, and without the last two of an item."""
    everywhere = np.ones((bench.semantics.B, bench.semantics.S), np.bool_)
    padded = everywhere.copy()
    padded[-1, -2:] = False
    yield from (everywhere, padded)


def _answer(
    bench: Bench, module: LiveModule, way: str, layer: Layer, parameters: dict[str, Array], valid: Array
) -> OtherAnswer | None:
    """How it answers otherwise with this padding, [B, S]; None: it does not, or cannot be asked so."""
    x: BSD = bench.x().astype(ml_dtypes.bfloat16).astype(np.float32)
    padding = None if valid.all() else valid[:, None, None, :]
    heads, masks = layer.attention.num_heads, Masks(padding, None, sequence=x.shape[1])
    try:
        feeds = module_feeds(bench.semantics, x, masks, heads, always_causal=bench.always_causal)
        plain, found = (bench.semantics.batch_first(each.run(feeds)["output"]) for each in (bench.module, module))
    except (ExecutionError, NotImplementedError):
        return None
    inputs = LayerInputs(x.astype(np.float64), parameters, bench.allowed() if padding is None else padding)
    exact = exact_stages(layer, inputs)
    with np.errstate(all="ignore"):
        condition = sampled_conditions(layer, inputs, exact, runs_of(layer))["output"]
    rows = {name: {"output": value[valid].astype(np.float32)} for name, value in (("plain", plain), ("found", found))}
    due, noise = {"output": exact["output"][valid]}, {"output": condition[valid]}
    verdicts = {name: judge_whole_tensors(due, noise, each, _FORMAT)["output"] for name, each in rows.items()}
    if verdicts["found"].conforms or not verdicts["plain"].conforms:
        return None
    right = rows["plain"]["output"].astype(np.float64)
    apart = np.nan_to_num(np.abs(rows["found"]["output"] - right)).max() / max(np.abs(right).max(), 1e-30)
    return OtherAnswer(way=way, masks=tuple(name for name in feeds if name != "x"), apart=float(apart))
