"""Who may import whom: no framework in the harness, and nothing on the adapter's side that its environment may lack."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from catalogue import of_every

from encoder_conformance.platform.paths import PACKAGE

FRAMEWORKS = frozenset(
    {
        "cupy",
        "equinox",
        "flax",
        "haiku",
        "jax",
        "jaxlib",
        "keras",
        "mxnet",
        "onnx",
        "onnxruntime",
        "onnxscript",
        "tensorflow",
        "tf2onnx",
        "tinygrad",
        "torch",
        "transformers",
    }
)
OWN = "encoder_conformance"
ADAPTERS_MAY_IMPORT = frozenset({OWN, "ml_dtypes", "numpy", "safetensors"})
"""ml_dtypes where a bfloat16 tensor comes over the wire, and not before."""
_ELSEWHERE = {"_specs", "impls"}
"""What a wheel has inside of the package, and a checkout beside it."""
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if not _ELSEWHERE & set(path.relative_to(PACKAGE).parts))


def name_of(path: Path) -> str:
    parts = (OWN, *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {name_of(path): path for path in MODULES}
PARENTS = [name for name in PATHS if not name.startswith(f"{OWN}.readers")]
"""What the parent process may import: readers run in workers, with a framework."""


@cache
def imported_by(name: str) -> frozenset[str]:
    """Every module that a module names anywhere: at its top, inside functions, under `if`, by `import_module("…")`."""
    tree = ast.parse(PATHS[name].read_text(encoding="utf-8"))
    return frozenset(_imports(tree, name, PATHS[name].name == "__init__.py"))


def _imports(tree: ast.Module, name: str, is_package: bool) -> Iterator[str]:
    package = name.split(".") if is_package else name.split(".")[:-1]
    for node in _nodes(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                base = (
                    ".".join([*package[: len(package) - node.level + 1], node.module or ""])
                    if node.level
                    else node.module
                )
                assert base
                yield base.rstrip(".")
                yield from (f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}" in PATHS)
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called), args=[ast.Constant(value=str(text)), *_]
            ):
                if called in ("import_module", "__import__", "find_spec"):
                    yield text


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All but what is for type checkers alone, and never run."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        for_types = isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"
        if not for_types:
            yield from _nodes(child)


def reached_from(*names: str) -> dict[str, frozenset[str]]:
    """The harness modules that come in with these, packages above them included, and what each imports."""
    found: dict[str, frozenset[str]] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found or name not in PATHS:
            continue
        found[name] = imported_by(name)
        if name != OWN:  # it imports a name on first use, and for type checkers
            waiting += [*found[name], name.rpartition(".")[0]]
    return found


def test_the_walk_sees_what_there_is_to_see() -> None:
    """A rule that looks at nothing holds always."""
    assert len(MODULES) > 40
    assert {"numpy", f"{OWN}.spec.portable"} <= imported_by(f"{OWN}.spec.case")
    assert {f"{OWN}.oracle.forms", f"{OWN}.spec.plan"} <= imported_by(f"{OWN}.oracle.play")
    text = "def f():\n    import torch.nn\n    from jax import numpy\n    import_module('keras')\nfrom ..x import y\n"
    assert set(_imports(ast.parse(text), f"{OWN}.a.b", False)) == {
        "torch.nn",
        "jax",
        "keras",
        f"{OWN}.x",
    }


@of_every(PARENTS)
def test_no_module_imports_a_framework(name: str) -> None:
    assert not {imported.split(".")[0] for imported in imported_by(name)} & FRAMEWORKS


@of_every(PATHS)
def test_every_module_can_be_read_in_a_sitting(name: str) -> None:
    assert len(PATHS[name].read_text(encoding="utf-8").splitlines()) < 400


@of_every(PATHS)
def test_every_module_that_holds_anything_says_what_for(name: str) -> None:
    tree = ast.parse(PATHS[name].read_text(encoding="utf-8"))
    assert not tree.body or ast.get_docstring(tree)


def test_the_adapters_side_needs_numpy_and_safetensors_only() -> None:
    """It runs in an implementation's own environment, with nothing of the harness's installed there."""
    reached = reached_from(*(name for name in PATHS if name.startswith(f"{OWN}.adapter")), f"{OWN}.protocol.frames")
    assert {
        OWN,
        f"{OWN}.adapter.serve",
        f"{OWN}.adapter.parameters",
        f"{OWN}.protocol.frames",
    } <= reached.keys()
    for name, imports in reached.items():
        outside = {imported.split(".")[0] for imported in imports} - ADAPTERS_MAY_IMPORT - sys.stdlib_module_names
        assert not outside, f"{name} imports {outside}"
    assert {name.split(".")[1] for name in reached if "." in name} == {"adapter", "platform", "protocol", "spec"}
    beside = {name for name in reached if name.startswith((f"{OWN}.spec.", f"{OWN}.platform."))}
    of_spec = {f"{OWN}.spec.{name}" for name in ("attention_choices", "plan", "stages", "steps")}
    assert beside == of_spec | {f"{OWN}.platform.memory", f"{OWN}.platform.recent"}


def loaded_after(statement: str) -> set[str]:
    """The top-level modules in a fresh interpreter once it has run this."""
    program = f"import sys, json; {statement}; print(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(ended.stdout))


def test_importing_an_adapters_base_loads_nothing_else() -> None:
    loaded = loaded_after("import encoder_conformance; encoder_conformance.Adapter")
    assert {OWN, "numpy", "safetensors"} <= loaded
    assert not loaded & ({"pydantic", "yaml", "click", "rich", "scipy"} | FRAMEWORKS)


def test_importing_the_whole_harness_loads_no_framework() -> None:
    names = [name for name in PARENTS if not name.endswith((".launch", "__main__"))]
    loaded = loaded_after(f"import importlib; [importlib.import_module(name) for name in {names!r}]")
    assert {OWN, "pydantic", "click"} <= loaded
    assert not loaded & (FRAMEWORKS | {"scipy"})  # SciPy's statistics alone take a second, of every command


def test_help_of_a_run_needs_click_and_little_else() -> None:
    loaded = loaded_after("import encoder_conformance.commands.main, encoder_conformance.commands.run.command")
    assert {OWN, "click"} <= loaded
    assert not loaded & {"numpy", "pydantic", "yaml", "rich"}


def test_a_run_starts_its_workers_before_it_imports_what_judges_and_prints() -> None:
    names = ("engine.head_start", "commands.run.chosen")
    statement = "import " + ", ".join(f"{OWN}.{name}" for name in names)
    rooms = loaded_after(f"{statement}; sys.modules = {{m.replace('{OWN}.', '', 1): 0 for m in sys.modules}}")
    assert {"engine", "worker", "pydantic"} <= rooms
    assert not rooms & {"judging", "diagnosis", "subjects", "rich"}


def test_no_two_rooms_of_onnx_file_need_each_other() -> None:
    """graph, reading, interface, tracing and layer; modules beside them are rooms of their own."""
    within = f"{OWN}.readers.onnx_file."
    rooms: dict[str, set[str]] = {}
    for name in PATHS:
        if name.startswith(within):
            room = name.removeprefix(within).split(".")[0]
            rooms.setdefault(room, set()).update(
                other.removeprefix(within).split(".")[0] for other in imported_by(name) if other.startswith(within)
            )
    TopologicalSorter({room: others - {room} for room, others in rooms.items()}).prepare()
    assert {"graph", "reading", "interface", "tracing", "layer", "inspection", "adapter"} <= rooms.keys()
    assert rooms["layer"] > {"graph", "interface", "tracing"}
