"""What is said of a module that fails as it is asked here, and answers as its user calls it."""

from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.furthest import Failed
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.dtypes import FORMATS


def not_as_given(runner: LiveModule, failed: Failed) -> BadTarget | None:
    """That it takes this x with gradients alone, or with its parameters in several formats; None where it does not."""
    module = runner.arranged(failed.arrangement) or runner
    try:
        module.watched({"x": failed.x})
    except Exception:  # whatever its own code raises
        return _in_several_formats(module, failed)
    problem = f"it fails where no gradients are computed, as under torch.no_grad(), and is asked so: {failed.problem}"
    hint = "have it register hooks on, and read gradients of, only what has requires_grad"
    return BadTarget(problem, hint, "takes-no-x")


def _in_several_formats(module: LiveModule, failed: Failed) -> BadTarget | None:
    held = sorted({*module.formats.values()} & {*FORMATS}, key=lambda name: -FORMATS[name].roundoff)
    for name in held if len(held) > 1 else ():
        module.own_format = name
        try:
            module.in_dtype(name).run({"x": failed.x.astype(FORMATS[name].numpy)})
        except ExecutionError:
            continue
        finally:
            module.own_format = ""
        problem = f"its parameters are in {' and '.join(held)}, and a copy in one of these fails: {failed.problem}"
        hint = "take out what casts to a format of its own, as .half(), and give it in one, as by .float()"
        return BadTarget(problem, hint, "takes-no-x", formats=held)
    return None
