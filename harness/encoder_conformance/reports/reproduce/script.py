"""The text of the script: the adapter's own code, its inputs, what is expected, and the comparison."""

import base64
import pprint
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

import encoder_conformance
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.task import Task
from encoder_conformance.oracle.expected import key
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import PACKAGE
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.protocol.messages import Export
from encoder_conformance.protocol.onnx_runtimes import onnx_runtime
from encoder_conformance.reports.reproduce.bundle import Bundle
from encoder_conformance.reports.reproduce.failure import FailingCheck
from encoder_conformance.reports.reproduce.modules import Module, read_adapter
from encoder_conformance.spec.case_parameters import drawn
from encoder_conformance.spec.load import constants
from encoder_conformance.subjects.starting import open_session
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.limits import WorkerLimits
from encoder_conformance.worker.marshalling import run_request

_ADAPTER = "the_adapter"
_BYTES_IN_A_LINE = 100


def script_of(shown: FailingCheck) -> str:
    """The script. It imports NumPy and what the adapter itself imports, and nothing of this project."""
    if shown.ready.implementation.capabilities.export:
        return _of_model(shown)
    known: dict[Path, Module] = {}
    task, case = shown.task, shown.task.case
    arguments = shown.ready.implementation.command[1:]
    adapter = read_adapter(shown.ready.folder / arguments[0], known, _ADAPTER)
    ours = (PACKAGE / "adapter/masks.py", PACKAGE / "adapter/request.py", PACKAGE / "spec/portable.py")
    masks, run, portable = (known.get(path) or Module(path, PACKAGE, known) for path in ours)
    roots = {adapter: [_ADAPTER], masks: ["Masks"], run: ["RunRequest"], portable: ["tensor"]}
    bundle = Bundle(roots, ["start", "build", task.check])
    request, tensors = run_request(task, shown.expected.kinked_rows)
    exponents = case.situation.parameter_exponents
    return _rendered(
        "script.txt",
        shown,
        given=request.given,
        code=bundle.text(ours=False),
        needed=bundle.text(ours=True),
        adapter=f"{adapter.function}().{_ADAPTER}",
        masks=f"{masks.function}().Masks",
        run=f"{run.function}().RunRequest",
        portable=f"{portable.function}().tensor",
        layer=case.layer.model_dump(mode="json"),
        drawn={
            name: (each.drawn_for, each.shape, each.pattern, each.exponent, each.regime)
            for name, each in drawn(case.layer, exponents, case.seed).items()
        },
        choices=dict(shown.ready.implementation.chosen),
        tensors=tensors,
        narrow=any(value.dtype.name == "bfloat16" for value in tensors.values()) or task.dtype == "bfloat16",
    )


def _of_model(shown: FailingCheck) -> str:
    """A script of ONNX Runtime and the model that the exporter writes."""
    settings = shown.judged.settings
    if settings.get("runtime") != "onnxruntime":
        problem, hint = f"ran its model in {settings.get('runtime')}", "a script runs a model in ONNX Runtime"
        raise InputError(problem, where=shown.ready.implementation.name, hint=hint)
    return _rendered(
        "onnx.txt",
        shown,
        given={"layout": "batch_first"},
        inputs=inputs(shown.task),
        model=exported(shown.task, shown.ready, shown.limits),
        level=onnx_runtime("onnxruntime").levels[settings["level"]],
        provider=settings["provider"],
        disabled=[settings["disabled"]],
    )


def _rendered(template: str, shown: FailingCheck, **values: Any) -> str:
    """A template with what both kinds of script have: what is wrong, what is expected, and the comparison."""
    task = shown.task
    tensor = shown.record.stage or task.tensors[-1]
    expected = shown.expected.tensors.get(key(task.check, tensor))
    if expected is None:
        hint = "its report is of another version, or was changed"
        raise InputError(f"has no {tensor!r} in {task.check}", where=task.case.id, hint=hint)
    return rendered(
        template,
        shown=shown,
        case=task.case,
        task=task,
        conform=encoder_conformance.__version__,
        title=_quoted(shown.ready.implementation.title),
        message=_quoted(shown.record.message),
        diagnosis=_quoted(shown.diagnosis),
        needs=_quoted(", ".join(f"{name} {version}" for name, version in shown.judged.versions.items())),
        tensor=tensor,
        expected=expected,
        sigma=np.maximum(task.format.roundoff * expected.condition.astype(np.float64), task.format.smallest_normal),
        limits=constants(),
        **values,
    )


def rendered(template: str, **values: Any) -> str:
    """A template of a script with these values."""
    environment = Environment(
        loader=PackageLoader("encoder_conformance.reports.reproduce"),
        autoescape=False,  # Python, not HTML
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(packed=_packed, python=_python, text=_text)
    return environment.get_template(template).render(values)


def _quoted(text: str) -> str:
    """Text of others inside a Python string: nothing in it ends the string."""
    return text.replace("\\", "/").replace('"', "'")


def _python(value: Any) -> str:
    return pprint.pformat(value, width=110, sort_dicts=False)


def _packed(value: np.ndarray[Any, Any]) -> str:
    """An expression that gives this array: its bytes, compressed, in text."""
    array = np.ascontiguousarray(value)
    return f'unpacked("{array.dtype.name}", {array.shape}, {_text(array.tobytes())})'


def _text(data: bytes) -> str:
    """Bytes, compressed, as a text over several lines."""
    text = base64.b85encode(zlib.compress(data, 9)).decode("ascii")
    lines = [text[at : at + _BYTES_IN_A_LINE] for at in range(0, len(text), _BYTES_IN_A_LINE)]
    return "(\n" + ("\n".join(f"    {line!r}" for line in lines) or "    ''") + "\n)"


_LARGEST = 4 << 20
"""Bytes of a model in a script."""


def exported(task: Task, ready: Ready, limits: WorkerLimits) -> bytes:
    """The file that the implementation deploys, with the case's parameters. Raises InputError if there is none."""
    where = f"{ready.implementation.name} {task.case.id}"
    if task.case.situation.mask.bias is not None:
        raise InputError("has a bias of the scores, which no deployed model takes", where=where)
    parameters = {name: value.astype(task.format.numpy) for name, value in task.case.parameters().items()}
    with open_session(ready, limits=limits) as session:
        answer = session.deploy(Export(layer=task.case.layer, dtype=task.dtype, mask="full"), parameters)
    if isinstance(answer, Failure):
        raise InputError(f"cannot be exported: {answer.message}", where=where)
    model = answer["file"].tobytes()
    if len(model) > _LARGEST:
        hint = "name a case of a smaller layer"
        raise InputError(f"its model has {len(model) / 2**20:.0f} MiB, too much for a script", where=where, hint=hint)
    return model


def inputs(task: Task) -> Tensors:
    """x [B, S, D], or token ids [B, S], mask [B, H, S, S] and valid [B, S], as a deployed model takes them."""
    case = task.case
    B, S, _ = case.x_shape
    every = B, case.layer.attention.num_heads, S, S
    mask = case.mask()
    allowed = np.broadcast_to(np.True_ if mask is None else mask, every)
    return {"x": case.given_x(task.format.numpy), "mask": np.ascontiguousarray(allowed), "valid": case.valid_keys()}
