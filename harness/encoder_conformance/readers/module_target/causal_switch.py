"""The argument of a module's call that makes it causal, and is true unless something else is given."""

import inspect

from encoder_conformance.readers.module_target.argument_lines import calls_of
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.masking import causal_with_open_masks
from encoder_conformance.readers.module_target.supplies import Supply
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics


def causal_unless(module: LiveModule, found: InputSemantics) -> str:
    """The name of the argument without which positions see later ones, of a module in which none does; "" where there
    is none."""
    for name in _true_by_default(module):
        other = module.giving({name: Supply("value", value=False)})
        try:
            if other is not None and not causal_with_open_masks(other, found):
                return name
        except ExecutionError:
            continue
    return ""


def _true_by_default(module: LiveModule) -> list[str]:
    called = next(iter(module.objects()), None)
    parameters = [each for method in calls_of(called) for each in inspect.signature(method).parameters.values()]
    return [each.name for each in parameters if each.default is True and each.name in module.signature.names]
