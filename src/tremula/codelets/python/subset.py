"""The subset of Python a codelet may use; every refusal names the user's line."""

import ast
from collections.abc import Mapping

from tremula.base.errors import suggest
from tremula.base.types import Type
from tremula.codelets.python.function_source import (
    FunctionSource,
    Known,
    check_allowed,
    dotted_name,
    local_names,
)
from tremula.codelets.python.nodes import walk
from tremula.codelets.spec import Direction, FieldKind, FieldSpec, VertexBase

_RESERVED = ("_k_", "__")  # how generated code's own names start
_USED_BY_KERNELS = frozenset("np len range min max native".split())


def check_compute(
    function: FunctionSource, fields: tuple[FieldSpec, ...], base: VertexBase
) -> None:
    """Refuse a `compute` that is not in the subset or misuses its fields.

    A `compute_on_host` is checked as the `compute` of a Vertex: it runs once for all workers.
    """
    tree = function.tree()
    _check_signature(function, tree, base)
    by_name = {f.name: f for f in fields}
    _check_nodes(function, tree, by_name, base)
    _check_writes(function, tree, by_name)
    for helper in helpers_of(function):
        _check_helper(helper)


def helpers_of(function: FunctionSource) -> list[FunctionSource]:
    """Every function it calls, callees before callers, each once."""
    result: dict[int, FunctionSource] = {}

    def visit(one: FunctionSource) -> None:
        for binding in one.bindings.values():
            if isinstance(binding, FunctionSource) and id(binding) not in result:
                visit(binding)
                result[id(binding)] = binding

    visit(function)
    return list(result.values())


def _check_helper(helper: FunctionSource) -> None:
    tree = helper.tree()
    arguments = tree.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
        raise helper.error(
            "a function called by a codelet takes plain parameters only", tree,
            "write f(a, b) without *, ** or defaults",
        )  # fmt: skip
    _check_nodes(helper, tree, {}, None)


def _check_signature(function: FunctionSource, tree: ast.FunctionDef, base: VertexBase) -> None:
    arguments = tree.args
    names = [a.arg for a in arguments.args]
    wanted = ["self", "worker_id"] if base is VertexBase.MULTI_VERTEX else ["self"]
    is_plain = not (arguments.vararg or arguments.kwarg or arguments.kwonlyargs)
    if not is_plain or len(names) != len(wanted) or names[:1] != ["self"]:
        method = _method(function)
        raise function.error(
            f"{method} of a {base.value} takes ({', '.join(wanted)}), got ({', '.join(names)})",
            tree,
            f"write def {tree.name}({', '.join(wanted)}):",
        )


def _method(function: FunctionSource) -> str:
    """`compute` or `compute_on_host`."""
    return function.name.rpartition(".")[2]


def _check_nodes(
    function: FunctionSource, tree: ast.FunctionDef, fields: Mapping[str, FieldSpec],
    base: VertexBase | None,
) -> None:  # fmt: skip
    check_allowed(function, tree)
    local = local_names(tree)
    for name in local:
        if name.startswith(_RESERVED) or name in _USED_BY_KERNELS:
            raise function.error(f"the name {name!r} is reserved", tree, "rename it")
    shadowed = sorted(n for n in local if n in function.bindings)
    if shadowed:
        raise function.error(f"{shadowed[0]!r} is both local and outside", tree, "rename it")
    for statement in tree.body:
        for node in walk(statement):
            _check_node(function, node, local)
            if isinstance(node, ast.Attribute) and dotted_name(node.value) == "self":
                _check_field_name(function, node, fields, base)
    if base is not None:
        _check_self(function, tree)


def _check_node(function: FunctionSource, node: ast.AST, local: set[str]) -> None:
    if isinstance(node, ast.For | ast.While) and node.orelse:
        raise function.error("a loop with else is not supported", node, "use a flag variable")
    if isinstance(node, ast.Constant):
        _check_constant(function, node)
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant | ast.Call):
        raise function.error("this expression does nothing", node, "assign it to something")
    if isinstance(node, ast.Call):
        _check_call(function, node, local)
    if isinstance(node, ast.Attribute):
        _check_attribute(function, node)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        _check_known(function, node, local)


def _check_known(function: FunctionSource, node: ast.Name, local: set[str]) -> None:
    is_part = any(name.startswith(node.id + ".") for name in function.bindings)
    if node.id not in local and node.id not in function.bindings and not is_part:
        raise function.error(f"unknown name {node.id!r}", node, suggest(node.id, local))


def _check_constant(function: FunctionSource, node: ast.Constant) -> None:
    # Text may be a docstring; elsewhere it is an error when the kernel is written.
    if not isinstance(node.value, bool | int | float | str):
        raise function.error(
            f"{node.value!r} is not a number", node, "codelets compute with numbers and bools"
        )


def _check_call(function: FunctionSource, node: ast.Call, local: set[str]) -> None:
    name = dotted_name(node.func)
    if name is None or name.split(".")[0] in local:
        shown = ast.unparse(node.func)
        raise function.error(
            f"{shown!r} cannot be called", node, "call functions defined outside the class"
        )
    target = function.bindings.get(name)
    if not isinstance(target, Known | FunctionSource | Type):
        raise function.error(f"{name!r} is not a function", node, "call a function or a type")
    is_numpy = isinstance(target, Known) and target.where == "numpy"
    if any(k.arg != "dtype" or not is_numpy for k in node.keywords):
        raise function.error(
            f"{name!r} is called with keyword arguments", node, "pass them by position"
        )
    if isinstance(target, Known) and is_numpy and len(node.args) < 2 and not node.keywords:
        _check_allocation(function, node, target)


def _check_allocation(function: FunctionSource, node: ast.Call, target: Known) -> None:
    if target.name in ("zeros", "ones", "empty"):
        raise function.error(
            f"{ast.unparse(node)!r} without a dtype makes 64-bit floats, which tiles do not have",
            node, "add dtype=np.float32",
        )  # fmt: skip


def _check_attribute(function: FunctionSource, node: ast.Attribute) -> None:
    name = dotted_name(node)
    if node.attr.startswith("_"):
        raise function.error(f"the attribute {node.attr!r} is private", node, "use a public one")
    if name is None:
        raise function.error(
            f"{ast.unparse(node)!r}: values have no attributes on a tile", node,
            "use len(x) for a size, and functions for everything else",
        )  # fmt: skip
    if name.startswith("self.") and name.count(".") > 1:
        raise function.error(
            f"{name!r}: fields have no attributes", node, "use len(self.field) for its size"
        )


def _check_field_name(
    function: FunctionSource, node: ast.Attribute, fields: Mapping[str, FieldSpec],
    base: VertexBase | None,
) -> None:  # fmt: skip
    is_worker_count = node.attr == "n_workers" and base is VertexBase.MULTI_VERTEX
    if node.attr in fields or (is_worker_count and isinstance(node.ctx, ast.Load)):
        return
    doing = "assigns" if isinstance(node.ctx, ast.Store) else "uses"
    raise function.error(
        f"{_method(function)} {doing} 'self.{node.attr}', which is not a field", node,
        suggest(node.attr, fields) + " Else annotate it in the class, or use a local variable",
    )  # fmt: skip


def _check_self(function: FunctionSource, tree: ast.FunctionDef) -> None:
    """`self` may only be used before a dot."""
    dotted = {id(n.value) for n in walk(tree) if isinstance(n, ast.Attribute)}
    for node in walk(tree):
        if isinstance(node, ast.Name) and node.id == "self" and id(node) not in dotted:
            raise function.error(
                "'self' is used by itself", node, "pass the fields a function needs, self.x"
            )


def _check_writes(
    function: FunctionSource, tree: ast.FunctionDef, fields: Mapping[str, FieldSpec]
) -> None:
    for node in walk(tree):
        if not isinstance(node, ast.Attribute | ast.Subscript):
            continue
        if not isinstance(node.ctx, ast.Store):
            continue
        base: ast.expr = node
        while isinstance(base, ast.Subscript):
            base = base.value
        if isinstance(base, ast.Attribute) and dotted_name(base.value) == "self":
            _check_write(function, node, fields[base.attr])


def _check_write(function: FunctionSource, node: ast.expr, target: FieldSpec) -> None:
    if target.direction is Direction.INPUT:
        raise function.error(
            f"{_method(function)} writes 'self.{target.name}', which is an Input", node,
            f"declare {target.name} as Output or InOut",
        )  # fmt: skip
    is_whole = isinstance(node, ast.Attribute)
    if is_whole and target.kind not in (FieldKind.SCALAR, FieldKind.STATE):
        raise function.error(
            f"'self.{target.name}' is a {target.kind.value} and cannot be assigned as a whole",
            node, f"write self.{target.name}[i] = … or self.{target.name}[:] = …",
        )  # fmt: skip
