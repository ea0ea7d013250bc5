"""Stubs of the modules whose functions are made from the table of operations: `make docs`.

Type checkers and editors do not run the loops in functions.py and expr.py; they read functions.pyi
and expr.pyi beside them, which a test compares with what is made here.
"""

from pathlib import Path

from tremula.poplibs.popops.elementwise.element_op import ElementOp
from tremula.poplibs.popops.elementwise.expr import __all__ as expr_names
from tremula.poplibs.popops.elementwise.functions import SUFFIXES, forms_of
from tremula.poplibs.popops.elementwise.nodes import N_PLACEHOLDERS
from tremula.poplibs.popops.elementwise.operations import ELEMENT_OPS

_HEAD = "# Made from operations.py by `make docs`.\n"


def functions_stub() -> str:
    """functions.pyi: three functions for every operation."""
    names = [op.name + suffix for op in ELEMENT_OPS.values() for suffix, _ in SUFFIXES]
    lines = [
        _HEAD,
        "from tremula.poplar.graph import Graph",
        "from tremula.poplar.programs import Sequence",
        "from tremula.poplar.tensors.tensor import Tensor",
        "from tremula.poplibs.popops.elementwise.element_op import ElementOp",
        "from tremula.poplibs.popops.elementwise.nodes import Number",
        "",
        "Operand = Tensor | Number",
        "SUFFIXES: tuple[tuple[str, str], ...]",
        "",
        "__all__ = [",
        *(f'    "{name}",' for name in names),
        "]",
        "",
        "def forms_of(op: ElementOp) -> tuple: ...",
        "def add_functions(op: ElementOp) -> None: ...",
        "def remove_functions(op: ElementOp) -> None: ...",
        *(line for op in ELEMENT_OPS.values() for line in _functions(op)),
    ]
    return "\n".join(lines) + "\n"


def _functions(op: ElementOp) -> list[str]:
    others = "".join(f", {o}: Operand" for o in "bc"[: op.n_operands - 1])
    first = "Operand" if op.n_operands > 1 else "Tensor"
    tail = 'sequence: Sequence, name: str = ""'
    signatures = (
        f"(graph: Graph, a: {first}{others}, {tail}) -> Tensor",
        f"(graph: Graph, a: Tensor{others}, {tail}) -> None",
        f"(graph: Graph, a: {first}{others}, out: Tensor, {tail}) -> None",
    )
    return [
        line
        for function, signature in zip(forms_of(op), signatures, strict=True)
        for line in (f"def {function.__name__}{signature}:", f'    """{function.__doc__}"""')
    ]


def expr_stub() -> str:
    """expr.pyi: the nodes, the placeholders, and a function for every operation."""
    lines = [
        _HEAD,
        "from tremula.poplibs.popops.elementwise.element_op import ElementOp",
        "from tremula.poplibs.popops.elementwise.nodes import (",
        *(f"    {name} as {name}," for name in expr_names),
        ")",
        "",
        *(f"_{i}: PlaceHolder" for i in range(1, N_PLACEHOLDERS + 1)),
        "",
        "__all__: list[str]",
        "def add_builder(op: ElementOp) -> None: ...",
        "def remove_builder(op: ElementOp) -> None: ...",
    ]
    for op in ELEMENT_OPS.values():
        operands = ", ".join(f"{o}: Operand" for o in "abc"[: op.n_operands])
        lines += [f"def {op.name}({operands}) -> Expr:", f'    """{op.about}"""']
    return "\n".join(lines) + "\n"


STUBS = {"functions.pyi": functions_stub, "expr.pyi": expr_stub}


def write_stubs() -> None:
    """Renew the stubs beside their modules."""
    for name, stub in STUBS.items():
        (Path(__file__).parent / name).write_text(stub(), encoding="utf-8")
