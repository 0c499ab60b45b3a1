"""The source of an adapter and of all that it imports of this project, as parsed modules."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import IMPLS, PACKAGE

OWN = "encoder_conformance"


@dataclass(frozen=True)
class Import:
    """A name that an `import` statement takes out of another module of this project."""

    statement: ast.ImportFrom
    module: "Module"
    name: str
    local: str


class Module:
    """A source file. `folder`: the adapter's, in which plain imports are looked for first."""

    def __init__(self, path: Path, folder: Path, known: dict[Path, "Module"], *, served_as: str = "") -> None:
        """`served_as`: the name that the adapter gets which the file serves where it is run."""
        self.path, self._folder, self._known = path, folder, known
        known[path] = self
        text = path.read_text(encoding="utf-8")
        if self.is_ours:  # without what only its readers need
            text = ast.unparse(ast.fix_missing_locations(_Bare().visit(ast.parse(text)))) + "\n"
        if served_as:
            text = f"{text.rstrip()}\n\n\n{served_as} = {_served(path, text)}\n"
        self.lines = text.splitlines()
        self.tree = ast.parse(text)

    @property
    def is_ours(self) -> bool:
        """Whether it is what adapters are written with, and no part of one."""
        return self.path.is_relative_to(PACKAGE) and not self.path.is_relative_to(IMPLS)

    @property
    def function(self) -> str:
        """The name of the function that makes this module in a script."""
        return re.sub(r"\W", "_", f"_{self.path.parent.name}_{self.path.stem}")

    @cached_property
    def imports(self) -> list[Import]:
        """The names that it takes out of modules of this project, wherever the statement stands."""
        found: list[Import] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.split(".")[0] == OWN or self._beside(alias.name) is not None:
                        raise _cannot(self.path, f"`import {alias.name}`", "write `from … import …`")
            elif isinstance(node, ast.ImportFrom):
                found += self._from(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(f"{OWN}."):
                raise _cannot(self.path, f"names {node.value} in a text", "import it by a statement")
        return found

    def _from(self, node: ast.ImportFrom) -> Iterator[Import]:
        name = node.module or ""
        if node.level:
            raise _cannot(self.path, "a relative import", "an adapter is a script, and imports by name")
        for alias in node.names:
            path, taken = self._find(name, alias.name)
            if path is not None:
                module = self._known.get(path) or Module(path, self._folder, self._known)
                yield Import(node, module, taken, alias.asname or alias.name)

    def _find(self, module: str, name: str) -> tuple[Path | None, str]:
        """The file that has a name, and "" in place of the name where it is the whole module."""
        if module == OWN:
            return _exported(name), name
        if module.split(".")[0] != OWN:
            return self._beside(module), name
        top, *rest = module.split(".")[1:]
        base = IMPLS.joinpath(*rest) if top == "impls" else PACKAGE.joinpath(top, *rest)
        if (base / f"{name}.py").is_file():
            return base / f"{name}.py", ""
        return (base.with_suffix(".py") if base.with_suffix(".py").is_file() else base / "__init__.py"), name

    def _beside(self, module: str) -> Path | None:
        path = self._folder / f"{module.replace('.', '/')}.py"
        return path if path.is_file() else None


def _exported(name: str) -> Path:
    """The file of the adapter API that defines a name."""
    init = PACKAGE / "adapter" / "__init__.py"
    for node in ast.parse(init.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return PACKAGE.joinpath(*(node.module or "").split(".")[1:]).with_suffix(".py")
    raise _cannot(init, f"no {name}", "the adapter API has no such name")


def read_adapter(script: Path, known: dict[Path, Module], served_as: str) -> Module:
    """The adapter's module, with all that it imports read. Raises InputError for what a script cannot hold."""
    try:
        first = Module(script.resolve(), script.resolve().parent, known, served_as=served_as)
        for module in (waiting := [first]):
            waiting += [each.module for each in module.imports if each.module not in waiting]
    except (SyntaxError, UnicodeDecodeError) as error:
        raise InputError(f"is no Python source: {error}", where=str(script)) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(error.filename)) from None
    return first


def _served(path: Path, text: str) -> str:
    """The expression in `serve(…)`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "serve" and node.args:
            return ast.unparse(node.args[0])
    raise _cannot(path, "no serve(…)", "an adapter ends with `serve(Adapter())`")


def _cannot(path: Path, what: str, hint: str) -> InputError:
    return InputError(f"cannot be put into a script: {what}", where=str(path), hint=hint)


class _Bare(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        if any(isinstance(each, ast.Name) and each.id == "abstractmethod" for each in node.decorator_list):
            return None
        node.returns = None
        for argument in (*node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg):
            if argument is not None:
                argument.annotation = None
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.bases = [base for base in node.bases if not (isinstance(base, ast.Name) and base.id == "ABC")]
        has_fields = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
        for each in node.body:
            if has_fields and isinstance(each, ast.AnnAssign):  # by which a dataclass finds it, whatever it says
                each.annotation = ast.copy_location(ast.Name("object", ast.Load()), each.annotation)
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if is_text(node) else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if isinstance(node.annotation, ast.Name) and node.annotation.id == "object":
            return node
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def is_text(node: ast.stmt) -> bool:
    """Whether a statement is a text alone, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
