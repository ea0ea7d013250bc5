"""The statements and expressions of Python that a codelet may contain at all."""

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tremula.codelets.python.function_source import FunctionSource

_STATEMENTS = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Return, ast.Expr,
    ast.Pass, ast.Break, ast.Continue,
)  # fmt: skip
_EXPRESSIONS = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Constant, ast.Name,
    ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple,
)  # fmt: skip
_HINTS = {
    "Try": "tiles have no exceptions: test with if",
    "Raise": "tiles have no exceptions: return False from compute, and test the step's flag",
    "Assert": "tiles have no exceptions: return False from compute, and test the step's flag",
    "With": "write the statements without with",
    "ListComp": "write a for loop",
    "GeneratorExp": "write a for loop",
    "Lambda": "define a function outside the class and call it",
    "FunctionDef": "define the function outside the class and call it",
    "ClassDef": "define the class outside compute",
    "Import": "import at the top of the file",
    "ImportFrom": "import at the top of the file",
    "Yield": "write results to an Output field",
    "JoinedStr": "tiles have no text",
    "Is": "compare with ==",
}
_WORDS = {
    "Try": "'try'", "TryStar": "'try'", "With": "'with'", "Yield": "'yield'",
    "YieldFrom": "'yield'", "Lambda": "'lambda'", "Raise": "'raise'", "Assert": "'assert'",
    "ClassDef": "a class", "FunctionDef": "a nested function", "Import": "'import'",
    "ImportFrom": "'import'", "Global": "'global'", "Nonlocal": "'nonlocal'",
    "Delete": "'del'", "ListComp": "a comprehension", "SetComp": "a comprehension",
    "DictComp": "a comprehension", "GeneratorExp": "a comprehension", "List": "a list",
    "Dict": "a dict", "Set": "a set", "JoinedStr": "an f-string", "Await": "'await'",
    "AsyncFunctionDef": "'async'", "AsyncFor": "'async'", "AsyncWith": "'async'",
    "Match": "'match'", "NamedExpr": "':='", "Starred": "'*' unpacking",
}  # fmt: skip


def check_allowed(function: "FunctionSource", tree: ast.FunctionDef) -> None:
    """Refuse the first thing that tiles have no meaning for."""
    for statement in tree.body:
        for node in ast.walk(statement):
            is_strange = (isinstance(node, ast.stmt) and not isinstance(node, _STATEMENTS)) or (
                isinstance(node, ast.expr) and not isinstance(node, _EXPRESSIONS)
            )
            if is_strange:
                kind = type(node).__name__
                hint = _HINTS.get(kind, "use arithmetic, if, for, while, and plain functions")
                what = f"a codelet cannot contain {_WORDS.get(kind, kind)}"
                raise function.error(what, node, hint)
