"""Every small change of a kind that a programmer makes by mistake, found on the syntax tree of a source file.

A change replaces one stretch of the text; everything else, comments included, stays as it is. What is no code of a
function is left alone: docstrings, annotations, decorators, defaults, and what is raised or printed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

SCALE = re.compile(r"scale|sigma|sensitivity|norm|clip|std|deviation|radius|multiplier|varian|bound|weight|total")
"""Names of what is a scale."""

SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)
"""Statements that may change places."""

ANSWER = "_answer_"
"""How the names of a module begin under which answers are remembered."""

REUSED = 3
"""Other names of the function that are tried in place of one."""


@dataclass(frozen=True)
class Change:
    """One stretch of a source file, and what stands there instead.

    Attributes:
        operator: The kind of change.
        line: Where it begins, from 1.
        start: The same in characters of the file, from 0.
        end: Where it ends.
        new: What stands there instead.
    """

    operator: str
    line: int
    start: int
    end: int
    new: str

    def applied(self, source: str) -> str:
        """The changed file."""
        return source[: self.start] + self.new + source[self.end :]


class _Text:
    """Where nodes of the tree stand in the text; the tree counts bytes of lines."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def place(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt | ast.keyword)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.place(node.lineno, node.col_offset), self.place(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.source[start:end]


@dataclass(frozen=True)
class _Within:
    """What an operator may ask beside the node.

    Attributes:
        text: Where nodes stand.
        modules: Names that the file imports.
        names: Names that the function binds, in order of their lines.
        role: How the node is used: `value` of a statement, `argument`, or anything else.
    """

    text: _Text
    modules: frozenset[str]
    names: tuple[str, ...]
    role: str


News = Iterator[tuple[ast.AST, str]]
"""Nodes, and what stands in their place."""


def _drop_call(node: ast.AST, at: _Within) -> News:
    """A call gives back what it was given."""
    if not isinstance(node, ast.Call):
        return
    if node.args and not isinstance(node.args[0], ast.Starred | ast.Constant):
        yield node, at.text.of(node.args[0])
    if isinstance(node.func, ast.Attribute):
        root = node.func.value
        while isinstance(root, ast.Attribute):
            root = root.value
        if not (isinstance(root, ast.Name) and root.id in at.modules):
            yield node, at.text.of(node.func.value)


def _drop_argument(node: ast.AST, at: _Within) -> News:
    """An argument that has a default is left out."""
    if not isinstance(node, ast.Call):
        return
    for left_out in node.keywords:
        parts = [at.text.of(part) for part in (*node.args, *node.keywords) if part is not left_out]
        yield node, f"{at.text.of(node.func)}({', '.join(parts)})"


def _drop_term(node: ast.AST, at: _Within) -> News:
    """Of two operands one is left."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        yield node, at.text.of(node.left)
        if isinstance(node.op, ast.Add | ast.Mult):
            yield node, at.text.of(node.right)


def _halve(node: ast.AST, at: _Within) -> News:
    """Half of something whose name is that of a scale."""
    name = node.func if isinstance(node, ast.Call) else node
    called = name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else ""
    if SCALE.search(called):
        yield node, f"({at.text.of(node)} / 2)"


def _swap(node: ast.AST, at: _Within) -> News:
    """Two arguments, or operands whose order matters, change places."""
    if isinstance(node, ast.Call):
        for first, second in pairwise(node.args):
            (start, end), (after, stop) = at.text.span(first), at.text.span(second)
            whole, last = at.text.span(node)
            source = at.text.source
            between = source[end:after]
            swapped = source[after:stop] + between + source[start:end]
            yield node, source[whole:start] + swapped + source[stop:last]
    orders = ast.Sub | ast.Div | ast.MatMult | ast.Pow | ast.FloorDiv | ast.Mod
    if isinstance(node, ast.BinOp) and isinstance(node.op, orders):
        (start, end), (after, stop) = at.text.span(node.left), at.text.span(node.right)
        source = at.text.source
        yield node, f"(({source[after:stop]}){source[end:after]}({source[start:end]}))"


def _reuse(node: ast.AST, at: _Within) -> News:
    """Another variable of the function."""
    if isinstance(node, ast.Name) and node.id in at.names:
        place = at.names.index(node.id)
        others = sorted((abs(number - place), name) for number, name in enumerate(at.names) if number != place)
        for _, name in others[:REUSED]:
            yield node, name


def _cast(node: ast.AST, at: _Within) -> News:
    """A value passes through a coarser type."""
    if at.role not in ("value", "argument") or isinstance(node, ast.Constant | ast.Tuple | ast.Starred):
        return
    if "np" in at.modules:
        yield node, f"np.asarray({at.text.of(node)}, np.float16)"
        yield node, f"np.rint({at.text.of(node)})"
    else:
        yield node, f"int({at.text.of(node)})"


def _off_by_one(node: ast.AST, at: _Within) -> News:
    """A number, a length or a bound that is one too many or too few."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield node, repr(node.value + 1)
        yield node, f"({node.value - 1!r})"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
        yield node, f"({at.text.of(node)} - 1)"
        yield node, f"({at.text.of(node)} + 1)"
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        signs = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
        sign = signs.get(type(node.ops[0]))
        if sign is not None:
            yield node, f"{at.text.of(node.left)} {sign} {at.text.of(node.comparators[0])}"


def _constant(node: ast.AST, at: _Within) -> News:
    """A constant in place of data."""
    if at.role in ("value", "argument") and isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
        yield node, f"({at.text.of(node)} * 0)"
        yield node, f"({at.text.of(node)} * 0 + 1)"


def _flip(node: ast.AST, at: _Within) -> News:
    """A condition is its opposite."""
    if isinstance(node, ast.If | ast.IfExp):
        yield node.test, f"(not ({at.text.of(node.test)}))"


def _remember(node: ast.AST, at: _Within) -> News:
    """A function gives the answer that it gave first."""
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield node.value, f'globals().setdefault("{ANSWER}{node.lineno}", {at.text.of(node.value)})'


ON_NODES: dict[str, Callable[[ast.AST, _Within], News]] = {
    "drop a call": _drop_call,
    "drop an argument": _drop_argument,
    "drop a term": _drop_term,
    "halve a scale": _halve,
    "swap arguments": _swap,
    "reuse a variable": _reuse,
    "cast": _cast,
    "off by one": _off_by_one,
    "constant for data": _constant,
    "flip a condition": _flip,
    "remember the first answer": _remember,
}
REORDER = "reorder statements"
OPERATORS = (*ON_NODES, REORDER)


def changes(source: str) -> list[Change]:
    """All changes of a file, in the order of the text; some (`compiles`) are no Python."""
    tree, text = ast.parse(source), _Text(source)
    modules = frozenset(
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    )
    found = []
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        names = _bound(function)
        for node, role in _nodes(function):
            at = _Within(text, modules, names, role)
            for operator, make in ON_NODES.items():
                for place, new in make(node, at):
                    start, end = text.span(place)
                    found.append(Change(operator, _line(place), start, end, new))
        found += _reordered(function, text)
    unique = dict.fromkeys(change for change in found if source[change.start : change.end] != change.new)
    return sorted(unique, key=lambda each: each.start)


def _line(node: ast.AST) -> int:
    assert isinstance(node, ast.expr | ast.stmt)
    return node.lineno


def compiles(source: str) -> bool:
    """Whether a file is Python."""
    try:
        compile(source, "changed", "exec")
    except SyntaxError:
        return False
    return True


def _bound(function: ast.FunctionDef) -> tuple[str, ...]:
    """Names that a function binds, its arguments first; `self` is none."""
    asked = function.args
    names = [each.arg for each in (*asked.posonlyargs, *asked.args, *asked.kwonlyargs)]
    inside = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    names += [node.id for node in sorted(inside, key=lambda node: node.lineno) if isinstance(node.ctx, ast.Store)]
    return tuple(dict.fromkeys(name for name in names if name not in ("self", "_")))


def _nodes(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    """The nodes of a function's own body and their roles, functions inside it left out."""
    todo: list[tuple[ast.AST, str]] = [(node, "") for node in _code(function.body)]
    while todo:
        node, role = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef | ast.Raise | ast.Assert | ast.JoinedStr):
            continue
        if not (isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load)):
            yield node, role
        if isinstance(node, ast.Call):
            todo += [(part, "argument") for part in node.args]
            todo += [(part.value, "argument") for part in node.keywords]
            if isinstance(node.func, ast.Attribute):
                todo.append((node.func.value, ""))
            continue
        parts = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.AnnAssign):
            parts = [part for part in (node.value,) if part is not None]
        value = getattr(node, "value", None) if isinstance(node, ast.Assign | ast.AugAssign | ast.Return) else None
        todo += [(part, "value" if part is value else "") for part in parts]


def _code(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements without the docstring."""
    first = body[0] if body else None
    said = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return body[1:] if said else body


def _reordered(function: ast.FunctionDef, text: _Text) -> Iterator[Change]:
    """Two simple statements, one after the other, change places."""
    for node in ast.walk(function):
        for block in (getattr(node, part, None) for part in ("body", "orelse", "finalbody")):
            if not isinstance(block, list):
                continue
            lines = _code(block)
            for first, second in pairwise(lines):
                if isinstance(first, SIMPLE) and isinstance(second, SIMPLE):
                    (start, end), (after, stop) = text.span(first), text.span(second)
                    source = text.source
                    new = source[after:stop] + source[end:after] + source[start:end]
                    yield Change(REORDER, first.lineno, start, stop, new)
