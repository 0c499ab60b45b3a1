"""Inspects a file: every stage as far as it goes, each finding kept, and what is inferred proved."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from encoder_conformance import Masks
from encoder_conformance.impls.onnx_file.findings import Findings
from encoder_conformance.impls.onnx_file.graph.execution import Array, Failed, Runner
from encoder_conformance.impls.onnx_file.graph.graph import Graph
from encoder_conformance.impls.onnx_file.interface.input_semantics import MaskRole, Roles, roles
from encoder_conformance.impls.onnx_file.interface.mask_inputs import fed
from encoder_conformance.impls.onnx_file.interface.ports import (
    Interface,
    check_dimensions,
    interface,
    numpy_dtype,
    port,
)
from encoder_conformance.impls.onnx_file.layer.inference import Inferred, infer
from encoder_conformance.impls.onnx_file.reading.checker import check, every_node, unknown_opset
from encoder_conformance.impls.onnx_file.reading.functions import check_functions
from encoder_conformance.impls.onnx_file.reading.loading import Unreadable, read
from encoder_conformance.impls.onnx_file.reading.node_order import check_order

Tensors = dict[str, Array]


@dataclass
class Inspection:
    """What was found; None where the file did not get so far."""

    findings: Findings
    model: onnx.ModelProto | None = None
    graph: Graph | None = None
    file: dict[str, Any] | None = None
    interface: Interface | None = None
    roles: Roles | None = None
    inferred: Inferred | None = None

    def description(self) -> dict[str, Any]:
        """As JSON; the contract of the request `inspect`."""
        nodes = every_node(self.model) if self.model is not None else []
        inferred = self.inferred
        return {
            "findings": self.findings.as_json(),
            "file": self.file,
            "nodes": len(nodes),
            "operators": dict(sorted(Counter(_operator(node) for node in nodes).items())),
            "inputs": [port(info).as_json() for info in self.graph.inputs] if self.graph else [],
            "outputs": [port(info).as_json() for info in self.graph.model.graph.output] if self.graph else [],
            "roles": self._roles(),
            "layer": inferred.layer.model_dump(mode="json") if inferred and inferred.layer else None,
            "facts": inferred.facts if inferred else [],
            "stages": {name: anchor.as_json() for name, anchor in inferred.stages.items()} if inferred else {},
            "parameters": {name: held.as_json() for name, held in inferred.parameters.items()} if inferred else {},
        }

    def _roles(self) -> dict[str, Any] | None:
        if self.interface is None:
            return None
        masks: list[dict[str, Any]] = [{"name": m.name, "axes": "", "meaning": None} for m in self.interface.masks]
        if self.roles:
            masks = [_mask(mask) for mask in self.roles.masks]
        return {"x": self.interface.x.name, "output": self.interface.output.name, "masks": masks}

    def parameters(self) -> Tensors:
        return {name: held.value for name, held in self.inferred.parameters.items()} if self.inferred else {}


def _operator(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def _mask(mask: MaskRole) -> dict[str, Any]:
    return {"name": mask.name, "axes": mask.axes, "meaning": mask.meaning.name if mask.meaning else None}


def inspect(path: Path, expected: str | None, *, thoroughly: bool = True) -> Inspection:
    """`expected` is what the user says of the masks: attend, ignore, additive or None. What is wrong with the file is
    a finding, and raises nothing. Not `thoroughly`: what it takes to run the file, no checks and no proof."""
    seen = Inspection(Findings())
    try:
        _inspect(path, expected, seen, thoroughly)
    except Unreadable:
        pass
    except MemoryError:
        seen.findings.error("loads", "it takes more memory than a file of its size may", "is a size in it absurd?")
    return seen


def _inspect(path: Path, expected: str | None, seen: Inspection, thoroughly: bool) -> None:
    findings = seen.findings
    external: set[str] = set()
    seen.model = read(path, findings, external)
    seen.file = _file(path, seen.model, external)
    check_functions(seen.model, findings)
    check_order(seen.model, findings)
    if thoroughly:
        check(seen.model, findings)
        if unknown_opset(seen.model):  # what its operators do is not known, whatever would run them
            return
    try:
        seen.graph = Graph(seen.model)
        seen.graph.constants  # noqa: B018  a tensor whose data does not fit its shape says so here
    except MemoryError:
        raise
    except Exception as error:
        findings.error("checker", f"its constants cannot be read: {str(error)[:300]}", "export it again")
        seen.graph = None
        return
    seen.interface = interface(seen.graph, findings)
    if seen.interface is None:
        return
    try:
        seen.roles, runner = roles(seen.graph, seen.interface)
    except Failed as error:
        findings.error(
            "loads", f"it runs at no batch and sequence that was tried: {error}", "see what it says of its shapes"
        )
        return
    check_dimensions(seen.interface, seen.roles.layout, findings)
    _check_run(seen.roles, seen.interface, runner, findings)
    _check_masks(seen.graph, seen.roles, expected, findings)
    seen.inferred = infer(seen.graph, seen.roles, runner, findings, proved=thoroughly)


def _file(path: Path, model: onnx.ModelProto, external: set[str]) -> dict[str, Any]:
    return {
        "bytes": path.stat().st_size,
        "external": sorted(external),
        "ir_version": model.ir_version,
        "opsets": {entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        "producer": " ".join(filter(None, (model.producer_name, model.producer_version))),
        "metadata": {entry.key: entry.value for entry in model.metadata_props},
    }


def _check_run(roles: Roles, of: Interface, runner: Runner, findings: Findings) -> None:
    """What a run at small sizes showed beside its numbers."""
    if runner.problem:
        findings.error(
            "loads",
            f"ONNX Runtime does not run it: {runner.problem}",
            "ONNX's reference implementation does; see the operator",
        )
    names = ("sequence", "batch") if roles.layout == "SBD" else ("batch", "sequence")
    sizes = of.x.shape or ()
    free = [what for what, size in zip(names, sizes, strict=False) if not isinstance(size, int)]
    if len(sizes) == 3 and free:
        got = {"batch": roles.B, "sequence": roles.S}
        if baked := [what for what in free if not runs_at(roles, runner, **{**got, what: got[what] + 2})]:
            said = ", ".join(f"{what} {got[what]}" for what in free)
            findings.error(
                "dimensions",
                f"{' and '.join(baked)} {'is' if len(baked) == 1 else 'are'} declared free, "
                f"and the file runs at {said} alone",
                "a Reshape in it holds the sizes of the example: export with sizes taken from x, or with dynamo=True",
            )
    if roles.across_batch:
        findings.error("layer", "an item of the batch changes another: attention or a norm goes across the batch", "")
    if roles.apart:
        findings.error("layer", "no position changes another: there is no attention in it, or all is hidden", "")
    if roles.causal:
        findings.error(
            "masks", "no position sees a later one: a causal mask is built into the file", "an encoder has none"
        )


def runs_at(roles: Roles, runner: Runner, batch: int, sequence: int) -> bool:
    """Whether the file gives an output in the shape of x at other sizes, with masks that hide nothing."""
    x = np.zeros(roles.x_shape(batch, sequence), numpy_dtype(roles.x.dtype))
    whole = fed(roles, Masks(None, None), batch, sequence, roles.num_heads)
    try:
        return runner.run({roles.x.name: x, **whole})[roles.output.name].shape == x.shape
    except Failed:
        return False


def _check_masks(graph: Graph, roles: Roles, expected: str | None, findings: Findings) -> None:
    told = [mask for mask in roles.masks if mask.meaning]
    for mask in roles.masks:
        if mask.meaning is None and roles.output.name not in graph.depending_on(mask.name):
            findings.error(
                "masks",
                f"the output does not depend on {mask.name!r}: the file takes it and ignores it",
                "was the mask of the example folded into constants? Export with the mask as a tensor that hides some",
            )
        elif mask.meaning is None and not roles.apart:
            say = findings.error if mask.dtype == "bool" else findings.warning
            say(
                "masks",
                f"flagging a position in {mask.name!r} hides it from no other, whichever way it is read",
                "it is no mask of keys",
            )
        elif mask.left:
            findings.error(
                "masks",
                f"{mask.name!r} hides a position in part: {mask.left:.2g} of what it does to the others is left",
                "what is added to hidden scores, or put in their place, is not low enough: export with -inf, or -1e9",
            )
    if expected is None:
        return
    if not roles.masks:
        findings.error("masks", f"masks that mean {expected} are expected, and the file takes none", "")
    for mask in told:
        assert mask.meaning is not None
        if mask.meaning.name != expected:
            findings.error(
                "masks",
                f"{mask.name!r} means {mask.meaning.name}, shown by what it hides, and {expected} is expected",
                "turn the mask round where the file is called, or export it anew",
            )
