"""The runtimes of ONNX files, each one record; a worker's sessions are in `impls/bases/onnx_model/runtimes.py`."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Runtime:
    """`package`: whose version is the runtime's, and which it takes. `levels`: of optimisation, from none on → the
    runtime's own word; "" alone: it has none to choose. `literal`: the level at which it follows a file to the letter;
    None: none is known to. `unknown`: its words for an operator that it does not have. `keeps_state`: whether a session
    may keep something of an earlier answer. `imports`, `load`: of a script, what it imports, and the body of a function
    that loads MODEL and gives one of feeds → the output, with `word` of the level, `output`, its name, and `place`, its
    number, to be filled in."""

    name: str
    package: str
    imports: str
    load: str
    levels: Mapping[str, str] = field(default_factory=lambda: {"": ""})
    literal: str | None = None
    unknown: str = "NOT_IMPLEMENTED"
    keeps_state: bool = True


ONNX_RUNTIMES = (
    Runtime(
        name="onnxruntime",
        package="onnxruntime",
        levels={
            "disable": "ORT_DISABLE_ALL",
            "basic": "ORT_ENABLE_BASIC",
            "extended": "ORT_ENABLE_EXTENDED",
            "all": "ORT_ENABLE_ALL",
        },
        literal="disable",
        imports="import onnxruntime as ort",
        load="""    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.{word}
    session = ort.InferenceSession(MODEL, options, ["CPUExecutionProvider"])
    return lambda feeds: session.run([{output!r}], feeds)[0]""",
    ),
    Runtime(
        name="reference",
        package="onnx",
        literal="",
        unknown="No implementation for operator",
        keeps_state=False,
        imports="from onnx.reference import ReferenceEvaluator",
        load="""    evaluator = ReferenceEvaluator(MODEL)
    return lambda feeds: evaluator.run([{output!r}], feeds)[0]""",
    ),
    Runtime(
        name="openvino",
        package="openvino",
        unknown="OpConversionFailure",
        imports="import openvino",
        load="""    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU", {{"INFERENCE_PRECISION_HINT": "f32"}})
    return lambda feeds: np.array(compiled(feeds)[{place}])""",
    ),
)
"""In the order in which a validation asks them."""


def onnx_runtime(name: str) -> Runtime:
    """Raises StopIteration for a name that none has."""
    return next(runtime for runtime in ONNX_RUNTIMES if runtime.name == name)
