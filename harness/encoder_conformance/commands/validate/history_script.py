"""A script that shows a dependence on history in the runtime alone: it imports that and NumPy, and nothing of ours."""

from pathlib import Path

from encoder_conformance.commands.validate.history import Dependence
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.onnx_runtimes import Runtime

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
_OPEN = {"attend": 1, "ignore": 0, "additive": 0}
_LAID_OUT = {"SBD": "x.swapaxes(0, 1)", "SD": "x[0]"}


def history_script(
    model: Path, run: str, runtime: Runtime, level: str, described: FileDescription, dependence: Dependence
) -> str | None:
    """None for what is a part of a whole model: its x is no input of the file."""
    roles, layer = described.roles, described.layer
    if described.cut is not None or roles is None or layer is None:
        return None
    x = described.port(roles.x)
    place = [port.name for port in described.outputs].index(roles.output)
    masks = [
        (mask.name, mask.axes, _OPEN[mask.meaning or "attend"], described.port(mask.name).dtype) for mask in roles.masks
    ]
    return _SCRIPT.format(
        runtime=run,
        before=dependence.before,
        size=dependence.size,
        imports=runtime.imports,
        model=str(model),
        masks=masks,
        load=runtime.load.format(word=runtime.levels[level], output=roles.output, place=place),
        width=x.shape[-1] if x.shape else None,
        heads=layer.attention.num_heads,
        dtype=x.dtype,
        x=x.name,
        laid_out=_LAID_OUT.get(roles.layout or "", "x"),
    )
