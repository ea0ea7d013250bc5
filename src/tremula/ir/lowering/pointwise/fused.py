"""An update as few expressions: element-wise nodes that only one other reads are folded into it.

    mean * 0.9 ──┐
                 ├─ add ── the new mean         three nodes, one map: _1 * _2 + _3 * _4
    grad * 0.1 ──┘

A mean that is kept in half is read twice: rounded, as the state, and as it is, by the weight. Both
compute it, so that it never is a tensor in float as large as its weight. What is folded computes
the same operations in the same types and order: numbers stay as they are.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import fx

from tremula.base.types import FLOAT
from tremula.ir.lowering.pointwise.map import mapped, number
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.lowering.types import tile_type
from tremula.ir.origin import OPTIMISER, ORIGIN
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy
from tremula.poplar.tensors.tensor import Tensor, concat, variable_tensor
from tremula.poplibs import poputil
from tremula.poplibs.popops.elementwise import expr
from tremula.poplibs.popops.elementwise.expr import Cast, Expr
from tremula.poplibs.popops.elementwise.nodes import N_PLACEHOLDERS

aten = torch.ops.aten
_CAST = aten._to_copy.default
_FORMULAS: dict[object, Callable[..., Expr]] = {
    aten.add.Tensor: expr.add,
    aten.sub.Tensor: expr.sub,
    aten.rsub.Scalar: lambda a, b: b - a,
    aten.mul.Tensor: expr.mul,
    aten.div.Tensor: expr.div,
    aten.sqrt.default: expr.sqrt,
    aten.neg.default: expr.neg,
    aten.reciprocal.default: expr.inv,
    aten.expm1.default: expr.expm1,
}
_FLOATS = (torch.float32, torch.float16)


class Folded:
    """Which nodes of a step's update are folded into which."""

    def __init__(self, step_graph: fx.Graph, chip_of: Mapping[fx.Node, int]):
        self._chip_of = chip_of
        self.nodes: dict[fx.Node, tuple[fx.Node, ...]] = {}  # a node → those that compute it
        self._leaves: dict[fx.Node, set[object]] = {}  # of each node that is not folded
        for node in reversed(step_graph.nodes):
            if _is_simple(node):
                self._place(node)

    def _place(self, node: fx.Node) -> None:
        """Fold a node into its readers, or let it be the root of a separate expression."""
        roots = tuple(dict.fromkeys(r for u in node.users for r in self.nodes.get(u, (u,))))
        leaves = set(_operands(node))
        fits = all(
            root in self._leaves and len(self._leaves[root] - {node} | leaves) <= N_PLACEHOLDERS
            for root in roots
        )
        if roots and fits and self._may_fold(node):
            self.nodes[node] = roots
            for root in roots:
                self._leaves[root] = self._leaves[root] - {node} | leaves
        else:
            self._leaves[node] = leaves

    def _may_fold(self, node: fx.Node) -> bool:
        n_computing = sum(user.target is not _CAST for user in node.users)
        return (n_computing <= 1 or node.target is _CAST) and all(
            _is_simple(user)
            and user.meta["val"].shape == node.meta["val"].shape
            and self._chip_of[user] == self._chip_of[node]
            for user in node.users
        )

    def has_folded(self, root: fx.Node) -> bool:
        """Whether a node computes others, too."""
        return any(operand in self.nodes for operand in _nodes_of(root))

    def places(self, order: Mapping[fx.Node, int]) -> dict[fx.Node, int]:
        """When each node is computed, if `order` is when it would be by itself."""
        return {n: max(order[r] for r in self.nodes.get(n, (n,))) for n in order}

    def n_readers(self, node: fx.Node) -> int:
        """How many expressions read a value."""
        readers = (user for user in node.users if user.op != "output")
        return len({root for user in readers for root in self.nodes.get(user, (user,))})

    def lower(self, tiles: Tiles, read: Callable[[fx.Node], Any]) -> Tensor:
        """A root and all that is folded into it, as one map."""
        leaves: dict[object, Tensor] = {}
        for leaf in self._leaves_of(tiles.node):
            is_node = isinstance(leaf, fx.Node)
            value = read(leaf) if is_node else tiles.constant(number(leaf, FLOAT), FLOAT)  # pyright: ignore[reportArgumentType]
            leaves[leaf] = _in_own_variable(tiles, value) if is_node else value
        like = _held(tiles, leaves) if tiles.destination is None else tiles.destination
        if like is not None and _place_of(tiles.graph, like) is None:
            like = None
        placed = [
            tensor if like is None else self._placed(tiles, leaf, tensor, like)
            for leaf, tensor in leaves.items()
        ]
        names = list(leaves)

        def formula(*values: Expr) -> Expr:
            return self._value(tiles.node, dict(zip(names, values, strict=True)))

        return mapped(tiles, formula, *placed)

    def _leaves_of(self, node: fx.Node) -> Iterator[object]:
        for operand in _operands(node):
            if operand in self.nodes:
                yield from self._leaves_of(operand)  # pyright: ignore[reportArgumentType]
            else:
                yield operand

    def _value(self, node: fx.Node, known: Mapping[object, Expr]) -> Expr:
        operands = [
            known[o] if o in known else self._value(o, known)  # pyright: ignore[reportArgumentType]
            for o in _operands(node)
        ]
        if node.target is _CAST:
            return Cast(operands[0], tile_type(node.meta["val"].dtype))
        return _FORMULAS[node.target](*operands)

    def _placed(self, tiles: Tiles, leaf: object, tensor: Tensor, target: Tensor) -> Tensor:
        """A value that several expressions read where they write: it is brought there once."""
        if tensor.shape != target.shape or not isinstance(leaf, fx.Node):
            return tensor
        if self.n_readers(leaf) < 2 or lies_like(tiles.graph, tensor, target):
            return tensor
        known: list[Tensor] = tiles.shared.setdefault(("placed", leaf), [])
        for own in known:
            if lies_like(tiles.graph, own, target):
                return own
        name = f"{tiles.name}/placed"
        own = poputil.clone_in_order(tiles.graph, target, name, type=tensor.type)
        flat, (source,) = poputil.in_memory_order(own, [tensor])
        tiles.sequence.add(Copy(source, flat))
        known.append(own)
        return own


# Scalars in one vector, such as the steps of all weights, from which on each gets a variable.
_N_SCALARS = 16


def _in_own_variable(tiles: Tiles, value: Tensor) -> Tensor:
    """An element of a vector as a variable: updates that differ in the element only are alike.

    All elements of the vector are copied at once, on the tile of the first.
    """
    if value.n_elems != 1 or value.pieces is not None:
        return value
    variable, graph = int(value.variable_ids()[0]), tiles.graph
    whole = variable_tensor(value.variables, variable).flatten()
    if whole.n_elems < _N_SCALARS or value.type != whole.type or whole.contains_constant:
        return value
    key = ("scalars", variable)
    if key not in tiles.shared:
        tile = int(graph.get_tile_mapping(whole[:1]).tile[0])
        name = f"{tiles.name}/scalars"
        own = [graph.add_variable(value.type, [], name, mapping=tile) for _ in range(whole.n_elems)]
        tiles.sequence.add(Copy(whole, concat([scalar.flatten() for scalar in own])))
        tiles.shared[key] = own
    return tiles.shared[key][value.offset - whole.offset].reshape(value.shape)


def _held(tiles: Tiles, leaves: Mapping[object, Tensor]) -> Tensor | None:
    """The weight or state that an expression is about, whose layout its value gets."""
    for leaf, tensor in leaves.items():
        is_held = isinstance(leaf, fx.Node) and leaf.op == "placeholder"
        if is_held and tensor.shape == tiles.out_shape:
            return tensor
    return None


def _place_of(graph: Graph, tensor: Tensor) -> tuple[object, ...] | None:
    """Equal for views of the same layout on the same tiles; None for views of several variables."""
    key = poputil.layout_key(tensor)
    if key is None:
        return None
    return *key, poputil.tiles_of_variable(graph, int(tensor.variable_ids()[0]))


def lies_like(graph: Graph, tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors of a shape lie alike: the same order in memory, on the same tiles.

    A clone may be described otherwise than what it is a clone of.
    """
    place, other_place = _place_of(graph, tensor), _place_of(graph, other)
    if place is None or other_place is None or place == other_place:
        return place is not None and place == other_place
    if place[-1] != other_place[-1]:  # the tiles
        return False
    flat, (second,) = poputil.in_memory_order(other, [tensor])
    return _whole_variable(flat) and _whole_variable(second)


def _whole_variable(flat: Tensor) -> bool:
    """Whether these are the elements of a variable, all of them and in its order."""
    whole = variable_tensor(flat.variables, int(flat.variable_ids()[0]))
    runs = flat.runs()
    is_one = len(runs.start) == 1 and int(runs.stride[0]) == 1
    return is_one and whole.n_elems == flat.n_elems


def _is_simple(node: fx.Node) -> bool:
    """Whether a node of the update has a formula, in the type in which it is computed."""
    origin = node.meta.get(ORIGIN)
    if node.op != "call_function" or origin is None or origin.phase != OPTIMISER:
        return False
    if node.target is _CAST:
        types = {node.meta["val"].dtype, *(n.meta["val"].dtype for n in node.all_input_nodes)}
        return set(node.kwargs) == {"dtype"} and types <= set(_FLOATS)
    nodes = [node, *node.all_input_nodes]
    is_float = all(n.meta["val"].dtype == torch.float32 for n in nodes)
    return node.target in _FORMULAS and is_float and not node.kwargs


def _operands(node: fx.Node) -> tuple[object, ...]:
    """Nodes and numbers that a simple node computes with."""
    return node.args[:1] if node.target is _CAST else node.args


def _nodes_of(node: fx.Node) -> list[fx.Node]:
    return [o for o in _operands(node) if isinstance(o, fx.Node)] if _is_simple(node) else []
