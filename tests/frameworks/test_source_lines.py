"""The line of the user's source that a refusal and a finding name, in every framework."""

import re
import runpy
import sys
from pathlib import Path
from traceback import FrameSummary
from typing import Any

import numpy as np
import pytest

from encoder_conformance.readers.module_target import calling_lines
from encoder_conformance.readers.module_target.calling_lines import line_in
from encoder_conformance.readers.module_target.frameworks import framework_of

FOLDER = Path(__file__).parent


def code_at(line: str) -> str:
    file, _, number = line.partition(":")
    return (FOLDER / file).read_text(encoding="utf-8").splitlines()[int(number) - 1]


def lines_of(file: str, name: str, d_model: int) -> dict[str, str]:
    module = runpy.run_path(str(FOLDER / file))[name]
    module = module() if isinstance(module, type) else module
    framework = framework_of(module)
    assert framework is not None
    read = framework.live(module).lines({"x": np.zeros((3, 5, d_model), np.float32)})
    return {own: lines[0] for own, lines in read.items()}


def of(needed: str, *case: Any) -> Any:
    return pytest.param(*case, marks=pytest.mark.needs(needed))


@pytest.mark.release
@pytest.mark.parametrize(
    ("file", "name", "expected"),
    [
        of("flax", "bare_jax.py", "Nnx", {"norm1.scale": "self.norm1(", "down.kernel": "self.down("}),
        of("flax", "bare_jax.py", "function", {"down.w": 'p["down"]', "wo.w": 'p["wo"]'}),
        of("equinox", "bare_jax.py", "Equinox", {"norm1.weight": "self.norm1", "down.bias": "self.down"}),
        of(
            "keras",
            "bare_keras.py",
            "Block",
            {"block.dense.kernel": "self.", "block.layer_normalization.gamma": "self."},
        ),
    ],
)
def test_each_parameter_has_the_line_of_the_user_that_reads_it(file: str, name: str, expected: dict[str, str]) -> None:
    made = runpy.run_path(str(FOLDER / file))
    found = lines_of(file, name, made["D"])
    for own, code in expected.items():
        assert code in code_at(found[own]), (own, found[own])


def test_the_innermost_frame_of_the_user_is_named_and_none_of_a_library() -> None:
    from traceback import FrameSummary

    import numpy

    library = str(Path(numpy.__file__).parent / "core.py")
    frames = [FrameSummary("/home/a/model.py", n, "call") for n in (3, 12)]
    assert line_in([*frames, FrameSummary(library, 5, "add")], ["numpy"]) == "model.py:12"
    assert line_in([FrameSummary(library, 5, "add")], ["numpy"]) == ""
    assert line_in([*frames, FrameSummary(library, 5, "add")], []) == "core.py:5"
    beside = str(Path(numpy.__file__).parent.with_name("numpyscale") / "layer.py")
    assert line_in([*frames, FrameSummary(beside, 7, "call")], ["numpy"]) == "layer.py:7"


def test_a_line_that_is_written_with_a_notation_is_the_user_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`einsum(a, b, "i j, j k -> i k")` of einops ends in its own folder."""
    (tmp_path / "einops").mkdir()
    (tmp_path / "einops/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in [each for each in sys.modules if each.partition(".")[0] == "einops"]:
        monkeypatch.delitem(sys.modules, name)
    calling_lines._folders.cache_clear()
    frames = [FrameSummary(str(tmp_path / name), 7, "call", lookup_line=False) for name in ("model.py", "einops/e.py")]
    assert line_in(frames, ()) == "model.py:7"
    calling_lines._folders.cache_clear()


PLACES = {
    "site-packages/vit/block.py": "x = self.wrapped(x)",
    "site-packages/vit/norm.py": "x = F.layer_norm(x)",
    "site-packages/helper/moves.py": "return x.reshape(shape)",
}


@pytest.mark.parametrize(
    ("classes", "frames", "due"),
    [
        (["vit.block.Block", "vit.norm.LayerNorm", "aten.layer_norm"], ["block", "norm"], "block.py:7"),
        (["vit.block.Block", "vit.block.PreNorm", "vit.norm.Scale", "aten.mul"], ["block", "norm"], "norm.py:7"),
        (["vit.block.Block", "helper.moves.Rearrange", "aten.view"], ["block", "moves"], "block.py:7"),
        ([], ["block", "moves"], "moves.py:7"),
    ],
)
@pytest.mark.needs("onnx")
def test_a_refusal_is_of_the_line_of_the_layer_that_places_what_it_names(
    classes: list[str], frames: list[str], due: str
) -> None:
    import onnx

    from encoder_conformance.readers.module_target.source_lines import GraphProblem, SourceLines

    node = onnx.helper.make_node("Identity", ["x"], ["seen"])
    stack = [
        f'File "/{path}", line 7, in forward\n    {code}' for path, code in PLACES.items() if Path(path).stem in frames
    ]
    kept = {"pkg.torch.onnx.stack_trace": "\n".join(stack)}
    kept |= {"pkg.torch.onnx.class_hierarchy": str(classes)} if classes else {}
    for key, value in kept.items():
        entry = node.metadata_props.add()
        entry.key, entry.value = key, value
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "one", [], []))
    assert SourceLines(model, "/site-packages/torch").of_problem(GraphProblem("at 'seen'")).partition(": ")[0] == due


@pytest.mark.release
@pytest.mark.parametrize(
    ("name", "said", "code"),
    [
        (
            "SideBySide",
            "attention and the feed-forward network stand side by side",
            "self.attended(self.norm1(x), mask) + ",
        ),
        ("Placed", "numbers that do not depend on x are added to it, as positions are", "torch.sin(positions"),
    ],
)
@pytest.mark.needs("torch")
def test_a_refusal_names_the_feature_and_its_line(name: str, said: str, code: str) -> None:
    from encoder_conformance.readers.module_target.describing import described
    from encoder_conformance.readers.module_target.examining import examine

    module: Any = runpy.run_path(str(FOLDER / "also_modules.py"))[name]()
    refused = described(examine(module, dtypes=("float32",))).not_read
    assert refused is not None
    assert said in refused.problem
    assert refused.beyond
    assert re.search(r"^also_modules\.py:\d+: ", refused.where)
    assert code in refused.where


def _one_line(x: Any) -> Any:
    doubled = x * 2
    more = doubled + 1
    return more.reshape(-1)


def _lines_of_one_value(x: Any) -> Any:
    doubled = x * 2
    more = doubled + 7
    return more - 6


def _two_lines(x: Any) -> Any:
    doubled = x * 2
    other = x + x
    return doubled + other + 1


@pytest.mark.parametrize(
    ("function", "value", "code"),
    [
        (_one_line, "more", "more = doubled + 1"),
        (_one_line, "doubled", "doubled = x * 2"),
        (_one_line, "inside", "more = doubled + 1"),
        (_lines_of_one_value, "more", "return more - 6"),
        (_lines_of_one_value, "inside", ""),
        (_two_lines, "doubled", ""),
        (_two_lines, "more", ""),
    ],
)
@pytest.mark.needs("jax", "onnx")
def test_a_value_of_an_export_is_of_the_one_line_that_gives_its_numbers(function: Any, value: str, code: str) -> None:
    """What no line gives, as what is inside of an operator's export, is of the line that gives what is made of it."""
    import onnx

    from encoder_conformance.readers.module_target.frameworks.jax_lines import LinesByValue

    numbers = [onnx.numpy_helper.from_array(np.array(n, np.float32), str(n)) for n in (2, 3, -2)]
    steps = (("Mul", "x", "2", "doubled"), ("Add", "doubled", "3", "inside"), ("Add", "inside", "-2", "more"))
    nodes = [onnx.helper.make_node(kind, [one, other], [made]) for kind, one, other, made in steps]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (3, 5)) for name in ("x", "more")]
    graph = onnx.helper.make_graph(nodes, "one", ends[:1], ends[1:], numbers)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    assert LinesByValue(function, model, (3, 5))(value).partition(": ")[2] == code
