"""Which tensors of a graph share memory, and which of its inputs it writes."""

from dataclasses import dataclass

from tremula.frontends.popxl.core.call_site import modified_inputs
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.tensor import Tensor, Variable


@dataclass(frozen=True)
class Aliases:
    """Memory of a graph: the tensor that each begins as, and which of those are written."""

    roots: dict[Tensor, Tensor]
    written: frozenset[Tensor]
    written_inputs: frozenset[int]  # by number
    borrowed_outputs: frozenset[int]  # outputs that are inputs, variables or other outputs, too

    def root(self, t: Tensor) -> Tensor:
        return self.roots.get(t, t)


def aliases_of(graph: Graph) -> Aliases:
    """Follow views and in-place operations from their operands."""
    roots: dict[Tensor, Tensor] = {}
    written: set[Tensor] = set()
    for op in graph.ops:
        for i in written_operands(op):
            t = op.inputs[i]
            written.add(roots.get(t, t))
        if op.row.is_view or (op.row.modifies and not op.row.gives_new):
            first = op.inputs[min(op.modified(), default=0)]
            for out in op.outputs:
                roots[out] = roots.get(first, first)
    for op in reversed(graph.ops):
        if op.kind == "ConcatInplace" and op.outputs[0] in written:
            written.update(roots.get(t, t) for t in op.inputs)
    inputs = {t: i for i, t in enumerate(graph.inputs)}
    borrowed, seen = set(), set()
    for i, t in enumerate(graph.outputs):
        root = roots.get(t, t)
        if root in inputs or root in seen or root.producer is None or isinstance(root, Variable):
            borrowed.add(i)
        seen.add(root)
    return Aliases(
        roots,
        frozenset(written),
        frozenset(inputs[t] for t in written if t in inputs),
        frozenset(borrowed),
    )


def written_operands(op: Op) -> set[int]:
    """Inputs that an operation changes."""
    if op.kind in {"Call", "Loop"}:
        return modified_inputs(op)
    return op.modified()
