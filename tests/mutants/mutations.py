"""Small faults for a module: each is the module's text with one expression or statement changed."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS = {
    **{ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="},
    **{ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"},
}
ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*"}


@dataclass(frozen=True)
class Mutation:
    """One change of a file's text: what stands between two places becomes something else."""

    begin: int
    end: int
    after: str
    line: int
    kind: str

    def of(self, text: bytes) -> bytes:
        """The changed text of the module."""
        return text[: self.begin] + self.after.encode() + text[self.end :]


def mutations(text: bytes) -> list[Mutation]:
    """All mutations of a module, in the order of its text.

    Annotations, docstrings, defaults of fields and what is for type checkers stay as they are; so
    do the words of messages.
    """
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def found(node: ast.AST, after: str, kind: str) -> Mutation:
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        return Mutation(begin, end, after, node.lineno, kind)

    def source(node: ast.AST) -> str:
        place = found(node, "", "")
        own = text[place.begin : place.end].decode()
        return f"({own})" if isinstance(node, ast.NamedExpr) else own

    def of_node(node: ast.AST) -> Iterator[Mutation]:
        match node:
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.Delete():
                yield found(node, "pass", "a statement goes")
            case ast.Continue() | ast.Break() | ast.AugAssign():
                yield found(node, "pass", "a statement goes")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield found(node, "pass", "a statement goes")
            case ast.Return(value=ast.expr() as value) if not _is_none(value):
                yield found(value, "None", "None is returned")
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                yield found(test, f"(not ({source(test)}))", "a condition is negated")
            case ast.BoolOp(values=[first, *_, last]):
                yield found(node, f"({source(first)})", "a condition loses its end")
                yield found(node, f"({source(last)})", "a condition loses its beginning")
            case ast.Compare(ops=[operator], left=left, comparators=[right]):
                changed = f"({source(left)} {COMPARISONS[type(operator)]} {source(right)})"
                yield found(node, changed, "another comparison")
            case ast.BinOp(op=operator, left=left, right=right) if type(operator) in ARITHMETIC:
                changed = f"({source(left)} {ARITHMETIC[type(operator)]} {source(right)})"
                yield found(node, changed, "another sign")
            case ast.Constant(value=bool() as value):
                yield found(node, str(not value), "another truth")
            case ast.Constant(value=int() as value):
                yield found(node, str(value + 1), "one more")
            case ast.Call(keywords=[*_, ast.keyword(arg=str(), value=last)] as keywords):
                word = keywords[-1]
                text_before = text[: found(word, "", "").begin].rstrip()
                if text_before.endswith(b",") and source(last):
                    whole = found(word, "", "an argument goes")
                    yield Mutation(len(text_before) - 1, whole.end, "", node.lineno, whole.kind)

    return sorted(
        (each for node in _walk(ast.parse(text)) for each in of_node(node)),
        key=lambda each: (each.begin, each.end, each.after),
    )


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes inside functions that are run when the module is used."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in child.body:
                yield from _inside(statement)
        elif not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield from _walk(child)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    match node:
        case ast.Raise():  # its message
            return
        case ast.AnnAssign(value=None) | ast.JoinedStr():
            return
        case ast.AnnAssign(value=value):
            yield from _inside(value)
            return
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            for statement in body:
                yield from _inside(statement)
            return
    for child in ast.iter_child_nodes(node):
        yield from _inside(child)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
