"""A script that shows a dependence on history in the runtime alone: it imports that and NumPy, and nothing of ours."""

from pathlib import Path

from encoder_conformance.validate.history import Dependence
from encoder_conformance.wire.description import FileDescription

_SCRIPT = '''"""{runtime} alone: after a run at {before}, [batch, sequence], an answer at {size} is not a fresh one."""

import numpy as np
{imports}

MODEL = {model!r}
MASKS = {masks!r}  # name, axes, the number that hides nothing, dtype


def loaded():
{load}


def given(batch, sequence):
    x = np.random.default_rng(0).normal(size=(batch, sequence, {width})).astype({dtype!r})
    sizes = {{"B": batch, "S": sequence, "H": {heads}, "X": batch * {heads}}}
    masks = {{n: np.full([sizes.get(a, 1) for a in axes], fill, dtype) for n, axes, fill, dtype in MASKS}}
    return {{{x!r}: {laid_out}, **masks}}


fresh = loaded()(given(*{size}))
again = loaded()
again(given(*{before}))
after = again(given(*{size}))
print("largest difference", np.abs(fresh - after).max(), "of numbers up to", np.abs(fresh).max())
'''
_LOADS = {
    "onnxruntime": (
        "import onnxruntime as ort",
        """    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_{level}
    session = ort.InferenceSession(MODEL, options, ["CPUExecutionProvider"])
    return lambda feeds: session.run([{output!r}], feeds)[0]""",
    ),
    "openvino": (
        "import openvino",
        """    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU", {{"INFERENCE_PRECISION_HINT": "f32"}})
    return lambda feeds: np.array(compiled(feeds)[{place}])""",
    ),
    "reference": (
        "from onnx.reference import ReferenceEvaluator",
        """    evaluator = ReferenceEvaluator(MODEL)
    return lambda feeds: evaluator.run([{output!r}], feeds)[0]""",
    ),
}
_LEVELS = {"disable": "DISABLE_ALL", "basic": "ENABLE_BASIC", "extended": "ENABLE_EXTENDED", "all": "ENABLE_ALL"}
_OPEN = {"attend": 1, "ignore": 0, "additive": 0}
_LAID_OUT = {"SBD": "x.swapaxes(0, 1)", "SD": "x[0]"}


def history_script(
    model: Path, runtime: str, level: str, description: FileDescription, num_heads: int, dependence: Dependence
) -> str | None:
    """None for what is a part of a whole model: its x is no input of the file."""
    roles = description.roles
    if description.cut is not None or roles is None or runtime not in _LOADS:
        return None
    x, imports, load = description.port(roles.x), *_LOADS[runtime]
    place = [port.name for port in description.outputs].index(roles.output)
    masks = [
        (mask.name, mask.axes, _OPEN[mask.meaning or "attend"], description.port(mask.name).dtype)
        for mask in roles.masks
    ]
    return _SCRIPT.format(
        runtime=" ".join(filter(None, (runtime, level))),
        before=dependence.before,
        size=dependence.size,
        imports=imports,
        model=str(model),
        masks=masks,
        load=load.format(level=_LEVELS.get(level, ""), output=roles.output, place=place),
        width=x.shape[-1] if x.shape else None,
        heads=num_heads,
        dtype=x.dtype,
        x=x.name,
        laid_out=_LAID_OUT.get(roles.layout or "", "x"),
    )
