"""Which forward values to keep if the others are computed again: cuts at decreasing distances.

Of N values a forward pass makes, keep one at the beginning of intervals of K, K - 1, … 1 values.
The backward pass begins with the shortest interval; by the time it comes to the longest, what it
kept for the others is gone. With K (K + 1) / 2 = N, K values are live at most, and K² are computed:

    15 values    0 . . . .  5 . . .  9 . .  12 .  14        25 computed, 5 live

PopART takes a smaller K and keeps every value behind its intervals. Where values differ in size or
operations branch, each interval keeps what is live at its cheapest place.
"""

import math
from dataclasses import dataclass

from torch import Tensor, fx

from tremula.ir.nodes import is_view, schema_name
from tremula.ir.origin import FORWARD, ORIGIN
from tremula.ir.step import CapturedStep

IDEAL, POPART = "ideal", "popart"
MODES = (IDEAL, POPART)


def first_interval(n: int, mode: str = IDEAL) -> int:
    """K: the length of the first interval of n values."""
    if mode == POPART:
        return int(0.75 * (math.isqrt(2 * n) - 1))
    return math.ceil((math.sqrt(8 * n + 1) - 1) / 2)


def intervals(n: int, mode: str = IDEAL) -> list[range]:
    """Places 0 … n - 1 cut into intervals of K, K - 1, … and, what remains, of one each."""
    result: list[range] = []
    begin, length = 0, first_interval(n, mode)
    while begin < n:
        end = min(n, begin + max(1, length))
        result.append(range(begin, end))
        begin, length = end, length - 1
    return result


@dataclass(frozen=True)
class ChainCost:
    """What a chain of equal operations takes."""

    n_forward: int  # operations, with those computed again
    n_live: int  # values at once, at most


def cost_of_chain(n: int, mode: str | None = IDEAL) -> ChainCost:
    """Of n operations, each kept at the beginning of its interval; None: all are kept."""
    parts = intervals(n, mode) if mode is not None else [range(i, i + 1) for i in range(n)]
    most = max((number + len(part) for number, part in enumerate(parts)), default=0)
    return ChainCost(n + sum(len(part) - 1 for part in parts), most)


# -- values of a step ------------------------------------------------------------------------------


def base_value(node: fx.Node) -> fx.Node:
    """The operation that computes what a view or one of several results shows."""
    while node.op == "call_function" and (is_view(node.target) or not schema_name(node)):
        node = node.all_input_nodes[0]
    return node


def forward_values(step: CapturedStep) -> list[fx.Node]:
    """What the forward pass computes, in its order; views compute nothing."""
    return [
        node
        for node in step.graph.nodes
        if node.op == "call_function"
        and base_value(node) is node
        and ORIGIN in node.meta
        and node.meta[ORIGIN].phase == FORWARD
    ]


def kept_values(values: list[fx.Node], mode: str) -> set[fx.Node]:
    """The union of the cheapest live set of each interval."""
    place = {node: number for number, node in enumerate(values)}
    last = {node: _last_forward_use(node, place) for node in values}
    saved: set[fx.Node] = set()
    for interval in intervals(len(values), mode):
        cuts = [{n for n in values[: p + 1] if last[n] > p or n is values[p]} for p in interval]
        saved |= min(cuts, key=lambda cut: sum(map(_n_bytes, cut)))
    return saved


def _last_forward_use(node: fx.Node, place: dict[fx.Node, int]) -> int:
    result = -1
    for user in node.users:
        if base_value(user) is user:
            result = max(result, place.get(user, -1))
        else:
            result = max(result, _last_forward_use(user, place))
    return result


def _n_bytes(node: fx.Node) -> int:
    values = node.meta.get("val")
    several = values if isinstance(values, tuple | list) else [values]
    return sum(v.numel() * v.element_size() for v in several if isinstance(v, Tensor))
