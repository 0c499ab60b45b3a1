"""The rooms of the package: who knows whom, one name for one thing, and functions that fit on a screen."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from encoder_conformance.platform.paths import IMPLS, PACKAGE

OWN = "encoder_conformance"
BELOW = {
    "platform": "",
    "spec": "platform",
    "protocol": "platform spec",
    "adapter": "platform spec protocol",
    "implementation": "platform spec oracle",
    "oracle": "platform spec protocol",
    "worker": "platform spec protocol implementation",
    "subjects": "platform spec protocol adapter implementation oracle worker",
    "judging": "platform spec protocol implementation oracle worker subjects",
    "diagnosis": "platform spec protocol implementation oracle judging",
    "blackbox": "platform spec protocol oracle worker subjects diagnosis",
    "engine": "platform spec protocol implementation oracle worker subjects judging diagnosis",
    "reports": "platform spec protocol implementation oracle worker subjects judging diagnosis engine adapter",
    "commands": (
        "platform spec protocol implementation oracle worker subjects judging diagnosis blackbox engine reports adapter"
    ),
    "readers": "platform spec protocol adapter oracle judging impls",
    "impls": "platform spec protocol adapter",
}
"""Room → the rooms that its modules may import. `readers` and `impls` run in workers: nothing imports them."""
LONGEST, MOST = 40, 6
"""The most lines of a function, and the most parameters."""
PUBLISHED = {
    "commands.check.from_python:check": "the public function, whose options are keywords",
    "impls.system_b_lucid_interface.encoder:__init__": "the signature that was published",
    "impls.keras_tf.embedding:__init__": "the parts of an embedding, each by its name",
    "impls.keras_tf.stack:call": "Keras' own arguments beside the layer's",
    "impls.pytorch.stack:forward": "the layer's arguments, and where and of what types tokens are",
    "oracle.forms.learned_positions:learned": "a form's choices are keywords",
}
"""Functions that may have more parameters, and why."""
LATE_IMPORTS = ("commands.", "engine.head_start", "pytest_plugin", "impls.", "readers.")
"""Where a function may import of our own: what a command needs is imported when it runs, a framework where it is."""
SESSIONS = ("worker", "subjects", "engine")
"""Rooms that start a worker's session."""


def _name(path: Path, folder: Path, package: str) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join([package, *parts]).removesuffix(".__init__").removesuffix(".")


@cache
def sources() -> Mapping[str, Path]:
    """Module → its file: all of the package but what a wheel has of the specification, and all of impls/."""
    ours = [path for path in PACKAGE.rglob("*.py") if not {"impls", "_specs"} & {*path.relative_to(PACKAGE).parts}]
    theirs = [path for path in IMPLS.rglob("*.py") if "node_modules" not in path.parts]
    return {
        **{_name(path, PACKAGE, OWN): path for path in ours},
        **{_name(path, IMPLS, f"{OWN}.impls"): path for path in theirs if path != PACKAGE / "impls" / "__init__.py"},
    }


@cache
def trees() -> Mapping[str, ast.Module]:
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in sources().items()}


def imported(node: ast.AST, known: Iterable[str]) -> Iterator[str]:
    """The modules of ours that a statement imports: a package's `__init__` counts under the package's name."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.split(".")[0] == OWN)
    elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == OWN:
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if inner in known else str(node.module)


def imports(tree: ast.AST, known: Iterable[str]) -> set[str]:
    """All that a module imports of ours, at its top and in functions, but for type checkers."""
    found: set[str] = set()
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        found.update(imported(child, known))
        found.update(imports(child, known))
    return found


def room(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield f"{name.removeprefix(f'{OWN}.')}:{node.name}", node


def is_command(node: ast.FunctionDef) -> bool:
    """Whether click makes a command of it."""
    return any("command(" in ast.unparse(each) for each in node.decorator_list)


def circle(edges: Mapping[str, Iterable[str]]) -> list[str]:
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_the_package_has_these_rooms() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name not in ("_specs", "__pycache__")}
    assert folders == set(BELOW)
    assert len(sources()) > 300


def test_a_room_imports_the_rooms_below_it_alone() -> None:
    up = sorted(
        f"{name} imports {other}"
        for name, tree in trees().items()
        if room(name) in BELOW
        for other in imports(tree, sources())
        if room(other) in BELOW and room(other) != room(name) and room(other) not in BELOW[room(name)].split()
    )
    assert up == []


def test_no_two_rooms_and_no_two_modules_need_each_other() -> None:
    known = sources()
    edges = {name: imports(tree, known) & known.keys() - {name, OWN} for name, tree in trees().items()}
    assert circle(edges) == []
    rooms: dict[str, set[str]] = defaultdict(set)
    for name, others in edges.items():
        if room(name) in BELOW:
            rooms[room(name)] |= {room(other) for other in others} - {room(name), ""}
    assert circle(rooms) == []


def test_a_circle_through_a_package_would_be_seen() -> None:
    """`frameworks/__init__.py` is the module `frameworks`."""
    known = {f"{OWN}.a", f"{OWN}.a.b"}
    assert imports(ast.parse(f"from {OWN}.a import b"), known) == {f"{OWN}.a.b"}
    assert imports(ast.parse(f"from {OWN}.a import thing"), known) == {f"{OWN}.a"}
    assert circle({"a": ["b"], "b": ["a"]}) != []


def test_a_public_class_has_a_name_of_its_own() -> None:
    """In the package, readers included; implementations each have their own `Encoder`."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, tree in trees().items():
        if room(name) != "impls":
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_function_fits_on_a_screen() -> None:
    long = sorted(
        f"{name}: {node.end_lineno - node.lineno + 1} lines"
        for name, node in functions()
        if node.end_lineno and node.end_lineno - node.lineno + 1 > LONGEST and not is_command(node)
    )
    assert long == []


def parameters(node: ast.FunctionDef) -> int:
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return len([each for each in given if each.arg not in ("self", "cls")])


def test_a_function_takes_few_parameters() -> None:
    many = {name: parameters(node) for name, node in functions() if not is_command(node)}
    assert {name: count for name, count in many.items() if count > MOST and name not in PUBLISHED} == {}
    assert all(many[name] > MOST for name in PUBLISHED), "an exception that is none any more"


def test_functions_import_of_ours_where_a_start_is_shortened_alone() -> None:
    late = sorted(
        name
        for name, node in functions()
        if not name.startswith(LATE_IMPORTS) and imports(node, sources()) and room(f"{OWN}.{name}") in BELOW
    )
    assert late == []


def test_three_rooms_start_sessions() -> None:
    started = {
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Session"
    }
    assert started
    assert {room(name) for name in started} <= set(SESSIONS), started
    assert len(started) <= 3


def test_one_loop_asks_and_judges() -> None:
    """A run has it in two threads: one puts the checks, the other judges the answers."""
    asking = f"{OWN}.judging.asking"
    importing = {
        name.removeprefix(f"{OWN}.")
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == asking
        if {alias.name for alias in node.names} & {"judged", "put"}
    }
    assert importing == {"judging.loop", "engine.runner", "engine.judge_thread"}
    noting = {
        name.removeprefix(f"{OWN}.")
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "see"
    }
    assert noting == {"judging.loop"}


def test_every_module_has_one_name() -> None:
    """No link, no second path to a module, and no file that two names import."""
    files = [path.resolve() for path in sources().values()]
    assert len(set(files)) == len(files)
    assert not [path for path in PACKAGE.rglob("*") if path.is_symlink()]
    with pytest.raises(ModuleNotFoundError):
        __import__(f"{OWN}.harness.errors")
    with pytest.raises(ModuleNotFoundError):
        __import__(f"{OWN}.benchmarks")
