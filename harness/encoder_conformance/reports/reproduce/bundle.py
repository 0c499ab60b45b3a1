"""Puts an adapter and what it needs into one text, without this harness: only what a check needs is kept.

Each module becomes a function that returns its names, so that two modules may use one name for two things.
"""

import ast
import io
import re
import textwrap
import tokenize
from collections.abc import Iterable, Iterator, Mapping

from encoder_conformance.adapter.base import Adapter
from encoder_conformance.reports.reproduce.modules import Module, is_text

_NEVER = ("serve",)
"""What an adapter imports to answer the harness, and a script has no use for."""


class Bundle:
    """The parts of modules that are reached from the names in `roots`, with these methods of their classes."""

    def __init__(self, roots: Mapping[Module, Iterable[str]], methods: Iterable[str]) -> None:
        self._needed: dict[Module, set[str]] = {module: set(names) for module, names in roots.items()}
        self._attributes = set(methods)
        self._asked = {module: set(names) for module, names in roots.items()}
        while self._grow():
            pass

    def text(self, *, ours: bool) -> str:
        """A function for each module: of the adapter, the first of which is its own; or of what adapters need."""
        return "\n\n".join(self._function(module) for module in self._needed if module.is_ours == ours)

    def _grow(self) -> bool:
        """Add what the kept statements use. Whether anything was added."""
        before = self._size()
        for module in list(self._needed):
            for node in self._kept(module):
                for used in self._walk(module, node):
                    if isinstance(used, ast.Name) and isinstance(used.ctx, ast.Load):
                        self._needed[module].add(used.id)
                    elif isinstance(used, ast.Attribute):
                        self._attributes.add(used.attr)
            for each in module.imports:
                if self._is_kept_import(module, each.local):
                    names = {each.name} if each.name else _top_names(each.module)
                    self._needed.setdefault(each.module, set()).update(names)
                    self._asked.setdefault(each.module, set()).update(names)
        return self._size() != before

    def _size(self) -> int:
        return sum(map(len, self._needed.values())) + len(self._attributes)

    def _is_kept_import(self, module: Module, local: str) -> bool:
        return local in self._needed[module] and local not in _NEVER

    def _kept(self, module: Module) -> Iterator[ast.stmt]:
        for node in module.tree.body:
            if not (isinstance(node, ast.ImportFrom | ast.Import) or _is_main(node) or _serves(node)):
                bound = _bound(node)
                if bound & self._needed[module] or not (bound or is_text(node)):
                    yield node

    def _walk(self, module: Module, node: ast.AST) -> Iterator[ast.AST]:
        """Every node below, without the methods that nothing calls."""
        yield node
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.ClassDef) and self._is_idle(module, child):
                continue
            yield from self._walk(module, child)

    def _is_idle(self, module: Module, child: ast.AST) -> bool:
        """Whether nothing calls a method. What a framework calls, of a layer, only the framework names."""
        if not isinstance(child, ast.FunctionDef) or child.name in self._attributes or child.name.startswith("__"):
            return False
        return module.is_ours or hasattr(Adapter, child.name)

    def _function(self, module: Module) -> str:
        inside = [*self._import_lines(module)]
        for node in self._kept(module):
            inside += ["", *self._lines(module, node)]
        where = f"{module.path.parent.name}/{module.path.name}"
        given = ", ".join(f"{name}={name}" for name in sorted(self._asked[module] & _top_names(module)))
        body = _indented(re.sub(r"\n{3,}", "\n\n", "\n".join([*inside, "", f"return SimpleNamespace({given})"])))
        return f"@cache\ndef {module.function}():  # {where}\n{body}\n"

    def _import_lines(self, module: Module) -> Iterator[str]:
        own = {id(each.statement) for each in module.imports}
        for node in module.tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in own:
                names = [a for a in node.names if (a.asname or a.name.split(".")[0]) in self._needed[module]]
                if names:
                    kept = ast.Import(names) if isinstance(node, ast.Import) else ast.ImportFrom(node.module, names, 0)
                    yield ast.unparse(kept)
            elif isinstance(node, ast.ImportFrom):
                yield from self._assignments(module, node)

    def _assignments(self, module: Module, statement: ast.ImportFrom) -> list[str]:
        """The lines in place of an import of this project's own."""
        return [
            f"{each.local} = {each.module.function}()" + (f".{each.name}" if each.name else "")
            for each in module.imports
            if each.statement is statement and self._is_kept_import(module, each.local)
        ]

    def _lines(self, module: Module, node: ast.stmt) -> list[str]:
        """The statement's own text, without methods that nothing calls, and with its imports rewritten."""
        lines = {number: module.lines[number - 1] for number in _span(node)}
        for parent in ast.walk(node):
            if isinstance(parent, ast.ClassDef):
                for child in parent.body:
                    if self._is_idle(module, child):
                        lines = {number: line for number, line in lines.items() if number not in _span(child)}
        for each in dict.fromkeys(each.statement for each in module.imports):
            if each.lineno in lines:
                assignments = self._assignments(module, each) or ["pass"]
                lines = {number: line for number, line in lines.items() if number not in _span(each)}
                lines[each.lineno] = textwrap.indent("\n".join(assignments), " " * each.col_offset)
        return [lines[number] for number in sorted(lines)]


def _span(node: ast.stmt) -> range:
    """The numbers of a statement's lines, its decorators included."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
    return range(first, (node.end_lineno or first) + 1)


def _is_main(node: ast.stmt) -> bool:
    names = ast.walk(node.test) if isinstance(node, ast.If) else ()
    return any(isinstance(each, ast.Name) and each.id == "__name__" for each in names)


def _serves(node: ast.stmt) -> bool:
    """Whether a statement answers the harness."""
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _NEVER


def _bound(node: ast.stmt) -> set[str]:
    """The names that a statement of a module gives a value."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    bound = set()
    for each in ast.walk(node):
        match each:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                bound.add(name)
            case ast.Subscript(ast.Name(name), ctx=ast.Store()) | ast.Attribute(ast.Name(name), ctx=ast.Store()):
                bound.add(name)
    return bound


def _top_names(module: Module) -> set[str]:
    """Every name that a module has once it is imported."""
    names = set[str]()
    for node in module.tree.body:
        names |= _bound(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    return names


def _indented(text: str) -> str:
    """Four spaces before each line that begins no deeper than a statement: the inside of a text stays as it is."""
    inside: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING:
            inside |= set(range(token.start[0] + 1, token.end[0] + 1))
    lines = text.splitlines()
    return "\n".join(
        f"    {line}" if line.strip() and number not in inside else line for number, line in enumerate(lines, 1)
    )
