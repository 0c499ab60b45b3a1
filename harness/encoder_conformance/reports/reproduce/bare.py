"""Takes out of this project's own source what a script can do without: texts, annotations, abstract methods."""

import ast


class _Bare(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        if any(isinstance(each, ast.Name) and each.id == "abstractmethod" for each in node.decorator_list):
            return None
        node.returns = None
        for argument in (*node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg):
            if argument is not None:
                argument.annotation = None
        self.generic_visit(node)
        node.body = _without_texts(node.body)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.bases = [base for base in node.bases if not (isinstance(base, ast.Name) and base.id == "ABC")]
        has_fields = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
        node.body = [_field(each) if has_fields else each for each in node.body]
        self.generic_visit(node)
        node.body = _without_texts(node.body)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if isinstance(node.annotation, ast.Name) and node.annotation.id == "object":
            return node
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def bare(text: str) -> str:
    """The source without what only its readers need."""
    tree = _Bare().visit(ast.parse(text))
    tree.body = [each for each in tree.body if not _is_text(each)]
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _field(node: ast.stmt) -> ast.stmt:
    """A dataclass finds its fields by their annotations, whatever they say."""
    if isinstance(node, ast.AnnAssign):
        node.annotation = ast.copy_location(ast.Name("object", ast.Load()), node.annotation)
    return node


def _without_texts(body: list[ast.stmt]) -> list[ast.stmt]:
    return [each for each in body if not _is_text(each)] or [ast.Pass()]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
