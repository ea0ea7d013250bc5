"""The page docs/ops.md: what every registered operation does, and on which types."""

import inspect
from collections.abc import Iterable
from importlib import import_module

from tremula.base.types import (
    BOOL,
    FLOAT,
    HALF,
    INT,
    LONGLONG,
    SHORT,
    SIGNED_CHAR,
    UNSIGNED_CHAR,
    UNSIGNED_INT,
    UNSIGNED_LONGLONG,
    UNSIGNED_SHORT,
    Type,
)
from tremula.poplibs.registry import Op, all_ops

# Columns of the matrix, with short heads to keep it narrow.
_COLUMNS: tuple[tuple[str, Type], ...] = (
    ("float", FLOAT), ("half", HALF), ("int", INT), ("uint", UNSIGNED_INT), ("short", SHORT),
    ("ushort", UNSIGNED_SHORT), ("char", SIGNED_CHAR), ("uchar", UNSIGNED_CHAR),
    ("int64", LONGLONG), ("uint64", UNSIGNED_LONGLONG), ("bool", BOOL),
)  # fmt: skip

_LIBRARIES = {
    "popops": """Element-wise functions come in three forms: `add` gives a new tensor,
`add_in_place` writes over its first operand, `add_with_output` to a tensor given after the
operands. Operands may be numbers. Shapes broadcast as in NumPy.""",
    "poplin": "Matrix products, convolutions and what is made of them.",
    "popnn": "Layers of networks, forwards and backwards.",
    "poprand": "Random numbers: a result follows from seed and layout alone.",
    "popsparse": "Products of sparse matrices; `pattern` is a `CSRMatrix`, see popsparse.md.",
    "gcl": "Collectives between the replicas of a graph; results are equal on all of them.",
}

_HEAD = """# Operations

Made from the registry in `src/tremula/poplibs/registry.py`; `make docs` renews it. Every operation
here is tested against a reference, on each of its types and on random layouts
(`tests/poplibs/test_registry.py`), and every vertex it uses says its cycles and flops.

Call an operation as `op(graph, tensors…, sequence, name="", **options)`: it adds vertices to the
graph and programs to the sequence, and returns its result, mapped to tiles. An operand of a type
that is not marked raises `PoplibsError`.

```python
import numpy as np
import tremula as tr
from tremula.poplibs import popops
from tremula.poplibs.popops.elementwise.expr import _1, _2

graph, sequence = tr.Graph(tr.IPUModel("bow").create_device()), tr.Sequence()
x = graph.add_variable(tr.FLOAT, [100, 7], "x", mapping="linear")
bias = graph.add_variable(tr.FLOAT, [7], "bias", mapping="linear")
y = popops.map(graph, popops.expr.tanh(_1 + _2) * 0.5, [x, bias], sequence)
graph.create_host_write("x", x)
graph.create_host_write("bias", bias)
graph.create_host_read("y", y)
engine = tr.Engine(graph, sequence).load()
engine.write_tensor("x", np.zeros((100, 7), np.float32))
engine.write_tensor("bias", np.ones(7, np.float32))
engine.run()
print(engine.read_tensor("y")[0, :3].round(3))
```

```text
[0.381 0.381 0.381]
```
"""


def ops_markdown() -> str:
    """The whole page."""
    ops = all_ops()
    parts = [_HEAD]
    for library, about in _LIBRARIES.items():
        mine = [op for op in ops.values() if op.name.startswith(library + ".")]
        if mine:
            parts += [f"\n## {library}\n\n{about}\n", _matrix(mine), "", _reference(mine)]
    return "\n".join(parts) + "\n"


def _matrix(ops: Iterable[Op]) -> str:
    heads = " | ".join(head for head, _ in _COLUMNS)
    rows = [f"| operation | {heads} |", "|---|" + ":-:|" * len(_COLUMNS)]
    for op in ops:
        marks = " | ".join("✓" if type in op.types else " " for _, type in _COLUMNS)
        rows.append(f"| `{op.name}` | {marks} |")
    return "\n".join(rows)


def _reference(ops: Iterable[Op]) -> str:
    rows = ["| operation | what it does | arguments after `graph` |", "|---|---|---|"]
    rows += [f"| `{op.name}` | {_sentence(op.about)} | `{_arguments(op)}` |" for op in ops]
    return "\n".join(rows)


def _sentence(about: str) -> str:
    text = " ".join(about.split()).replace("|", "\\|")
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _arguments(op: Op) -> str:
    """Names of the parameters of the public function; options with their defaults."""
    library, _, own_name = op.name.partition(".")
    module = import_module(f"tremula.poplibs.{library}")
    public = getattr(module, own_name, None)
    function = public if callable(public) else op.function  # tests may call it through a wrapper
    words = []
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        is_given = parameter.default is inspect.Parameter.empty
        words.append(name if is_given else f"{name}={_default(parameter.default)}")
    return ", ".join(words).replace("|", "\\|")


def _default(value: object) -> str:
    return str(value) if isinstance(value, Type) else repr(value)
