"""What is read off a module's export, at as many positions as show it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from encoder_conformance.protocol.arguments import Layout
from encoder_conformance.protocol.description import Fact
from encoder_conformance.protocol.findings import SourceLine
from encoder_conformance.readers.module_target.calling import is_another_sequence
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.exporting import Exported, export_and_infer
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.local import reach_of_module, window_of_each, with_window
from encoder_conformance.readers.module_target.own_masks import unseen_by_others
from encoder_conformance.readers.module_target.probing import drawn
from encoder_conformance.readers.module_target.returned import OtherShape
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE
from encoder_conformance.readers.onnx_file.layer.parameters import TABLE
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.readers.onnx_file.tracing.unsupported import NO_LAYER, SENTENCES
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.words import some

_MANY, _FILLED = 92, 128
"""Positions: of so many the distances are more numbers than an exporter folds, 8192, and show all buckets up to 128.
The other is a multiple of what a module may fill a sequence up to (8, 16, 64), so that nothing is filled."""


_LEAST_TELLING: set[Feature] = {"side_by_side", "blocks"}
"""What is found in a graph where heads are read of which one part is no layer's."""
_LESS_TELLING: set[Feature] = {
    *("added", "unkeyed", "largest", "padded", "activation", "grouped_map", "heads_cut", "heads_beside"),
    *_LEAST_TELLING,
}
"""What is found in a graph, and may be of a part that no layer has, as a column more of scores by distance is, a gate
before a convolution, and a map of each position's, which may be a matrix that turns it."""
_TELLING: set[Feature] = {"fourier", "recurrence", "convolution", "experts", "batch", "relative"}
"""Parts that no layer has, whatever else is there."""


def read_off(module: LiveModule, semantics: InputSemantics, *, at_any_length: bool = True) -> Exported:
    """What is read off it, at few positions. What is done by distance may be seen at many alone: a window that reaches
    over some of the few, and a table by distance, of which an exporter makes numbers where they are few: what these are
    not is then said of the many. What is filled up to a multiple is read where there is nothing to fill. And what an
    exporter simplified may be seen before it did."""
    exported = export_and_infer(module, semantics)
    by_distance = any(name.endswith(TABLE) for name in exported.unplaced)
    if not by_distance and (exported.layer is not None or not exported.traced):
        return exported
    many = _FILLED if "padded" in exported.features else _MANY
    longer = export_and_infer(module, replace(semantics, S=many)) if at_any_length else exported
    is_whole = longer.layer is not None and not longer.unplaced
    others = [longer] if is_whole else [export_and_infer(module, semantics, simplified=False)]
    read = next((each for each in others if each.layer is not None and not each.unplaced), exported)
    if read.layer is None:
        return _of_less(module, semantics, read)
    if "padded" in exported.features:
        read = replace(read, otherwise=exported)
    return longer if read.unplaced and longer.features else read


_OF_ITEMS = "from one item of the batch to another"


def read_as_it_lies(
    semantics: InputSemantics, read: Callable[[InputSemantics], Exported]
) -> tuple[InputSemantics, Exported]:
    """What is `read` off it, and of which layout of x. Where every row of x changes every other, as of heads that are
    put together across items, x may lie either way: it lies as its attention, which goes over positions, has it."""
    exported = read(semantics)
    if (
        exported.layer is None
        and semantics.across_batch
        and semantics.layout == "BSD"
        and _OF_ITEMS in exported.problem
    ):
        turned = replace(semantics, layout="SBD", B=semantics.S, S=semantics.B)
        otherwise = read(turned)
        if otherwise.traced and _OF_ITEMS not in otherwise.problem:
            return turned, otherwise
    return semantics, exported


_IN_TURN: set[Feature] = {"products", "side_by_side"}
"""What a graph shows of items, or parts of a sequence, that are computed one after the other, if it shows anything."""
_FEW = ((1, SEQUENCE), (BATCH, 4), (BATCH, 2))
"""Sizes of batch and sequence at which there is one item, or one part of a sequence, alone."""


def _of_less(module: LiveModule, semantics: InputSemantics, exported: Exported) -> Exported:
    """What is read of one item, or of few positions, where a loop goes over items, or over parts of a sequence, as of a
    feed-forward network in chunks: there is one turn then. That the live module does this at all sizes is proved."""
    if not exported.traced or {*exported.features} - _IN_TURN or semantics.layout == "SD":
        return exported
    for batch, sequence in _FEW:
        less = replace(semantics, B=batch, S=sequence)
        if (batch, sequence) == (semantics.B, semantics.S) or not module.takes(drawn(less.x_shape(batch, sequence))):
            continue
        found = export_and_infer(module, less)
        if found.layer is not None and not found.unplaced:
            return replace(found, otherwise=exported)
    return exported


def with_a_name(
    module: LiveModule, x: Array, layout: Layout, exported: Exported, loose: Sequence[str] = ()
) -> Exported:
    """Where the graph is no layer's for a reason without a name, what the module is seen to do gives it one. `loose`:
    the tensors that it computes with and that are no parameters."""
    if exported.layer is None and x.shape[-1] == 1:
        problem = f"{NO_LAYER}d_model is 1, and a norm over one feature gives its shift, whatever it is given"
        if other := _given_of_two(module, x):
            problem = f"it takes {module.signature.x} of two features, and gives nothing of its shape: {other}"
        return replace(exported, problem=problem, where="")
    others = [name for name in module.supplied if is_another_sequence(name)]
    if exported.layer is None and others:
        problem = f"{NO_LAYER}{SENTENCES['second_sequence'][0]} ({some(others)}, which its model gives it)"
        return replace(exported, problem=problem, features=("second_sequence",))
    conditions = [name for name, each in module.signature.arrangement.beside.items() if each.kind == "condition"]
    if conditions and "second_gain" in exported.features:
        return _modulated(exported, f"of {', '.join(conditions)}", exported.where)
    if exported.unplaced and not exported.problem:
        return _unplaced(exported, conditions, loose)
    if exported.layer is None and (keys := _draws_of(module, x)):
        problem = f"{SENTENCES['drawn'][0]} ({', '.join(keys)})"
        return replace(exported, problem=problem, where="", features=("drawn",))
    if exported.layer is not None or {*exported.features} - _LESS_TELLING:
        return exported
    one = x[:, :1] if layout == "SBD" else x[:1]  # a loop over items takes more products of two
    seen = module.beyond(one if module.takes(one) else x, layout)
    telling = {*exported.features} - _LEAST_TELLING
    named = [each for each in seen if not telling or each in _TELLING]
    if "blocks" in (*named[:1], *exported.features) and "one_key" not in named and _are_apart(module, x, layout):
        named, seen = ["heads_beside"], {"heads_beside": seen.get("blocks", exported.where)}
    if not named:
        return exported
    feature, where = named[0], seen[named[0]]
    problem = f"{NO_LAYER}{SENTENCES[feature][0]}"
    return replace(exported, problem=problem, where=where or exported.where, features=(feature,))


def _unplaced(exported: Exported, conditions: Sequence[str], loose: Sequence[str]) -> Exported:
    """Why what a layer computes with is none of its parameters. `conditions`: arguments that it may be computed of."""
    several = ", ".join(exported.unplaced)
    if conditions:
        made = f"{several}, of {', '.join(conditions)}"
        return _modulated(exported, made, exported.lines.get("norm.kind", ""))
    problem = f"{several} is computed of its parameters, and is none of them: it cannot be set"
    if loose:
        problem = f"{several} is none of its parameters, and cannot be set: it uses {some(loose)}, no parameter"
    if exported.rounded_to:
        problem = (
            f"its weights are rounded to {exported.rounded_to} in each call, as under autocast: it is no layer of "
            "float32. Check it without that; of PyTorch, --also autocast-bf16 asks what autocast does"
        )
    if several.endswith(TABLE):
        problem = "what it adds to its scores by position is computed from tables, and is none of their rows (E-23)"
    return replace(exported, problem=problem)


def _draws_of(module: LiveModule, x: Array) -> list[str]:
    """The keys of random numbers, if its output is another for others."""
    beside = module.signature.arrangement.beside
    keys = {name: replace(each, number=1.0) for name, each in beside.items() if each.kind == "seed"}
    other = module.giving(keys) if keys else None
    drawn = other is not None and not np.array_equal(other.run({"x": x})["output"], module.run({"x": x})["output"])
    return [*keys] if drawn else []


def _given_of_two(module: LiveModule, x: Array) -> str:
    """What it returns for two features at each position, where x has one; "" where it refuses that."""
    try:
        module.run({"x": np.concatenate((x, x), -1)})
    except OtherShape as error:
        return str(error)
    except ExecutionError:
        pass
    return ""


def _are_apart(module: LiveModule, x: Array, layout: Layout) -> bool:
    """Whether no position changes another: neither the first nor, where the first alone asks, the last."""
    before = module.run({"x": x})["output"]
    for place in (0, -1):
        other, at = x.copy(), (place,) if layout == "SBD" else (slice(None), place)
        other[at] = -x[at]
        changed = (before != module.run({"x": other})["output"]).any(-1)
        changed[at] = False
        if changed.any():
            return False
    return True


def _modulated(exported: Exported, made: str, where: str) -> Exported:
    """What a layer computes from another input has no number of its own. `made`: what is, and of which."""
    problem = f"{NO_LAYER}{SENTENCES['modulated'][0]}"
    return replace(exported, problem=f"{problem} ({made})", where=where, features=("modulated",))


def refuse_one_length(module: LiveModule, x: Array, exported: Exported) -> None:
    """Raises BadTarget for a layer that does not take as few positions as others do: what it does is read at those that
    it takes, and the situations are of any."""
    if x.shape[1] == SEQUENCE:
        return
    given = f", for which its model gives it {', '.join(module.supplied)}" if module.supplied else ""
    only = f"it takes {x.shape[1]} positions, and no {SEQUENCE}{given}"
    problem = only if exported.layer is not None else f"{exported.problem}; {only}"
    about = {"taken": x.shape[1], "refused": SEQUENCE, "features": exported.features}
    raise BadTarget(problem, "layers are judged at several lengths", "one-length-alone", **about)


def _line_of_constants(exported: Exported) -> str:
    """The line that adds constants to the scores, if any is known to."""
    found = (each.about.get("source") for each in exported.taken_for if each.kind == "constant-added-to-scores")
    return next((str(SourceLine.model_validate(each)) for each in found if each), "")


def with_its_window(module: LiveModule, semantics: InputSemantics, exported: Exported) -> Exported:
    """A layer is read at a few positions, and whether its attention is local seen at many: as a window, or else it is
    none that is known."""
    if exported.layer is None:
        return exported
    own, reach = exported.layer.attention.window, reach_of_module(module, semantics)
    window = None if reach is None else window_of_each(reach, exported.layer.stack.layers)
    if reach is None and own is None and (unseen := unseen_by_others(module, semantics)) is not None:
        problem = f"{NO_LAYER}{SENTENCES['unseen'][0]} ({unseen})"
        return Exported(
            problem=problem,
            where=unseen.where or _line_of_constants(exported),
            notes=exported.notes,
            features=("unseen",),
        )
    if reach is None or (own is not None and own == window):
        return exported
    if own is None and window is not None:
        evidence = f"a position changes none that is further than {reach.right} before it, or {reach.left} behind it"
        fact = Fact(key="attention.window", value=window.model_dump(), evidence=evidence)
        return replace(exported, layer=with_window(exported.layer, window), facts=(*exported.facts, fact))
    problem = f"{NO_LAYER}{SENTENCES['window'][0]} ({reach})"
    return Exported(problem=problem, notes=exported.notes, features=("window",))
