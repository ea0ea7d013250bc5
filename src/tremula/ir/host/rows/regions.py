"""Which rows are computed together: levels of a step, and the kernels they make.

Everything that is computed row by row and everything that sums rows is put on a *level*: a value is
one level above whatever must be complete before it, such as the table that a gather reads. The
operations of one level over the same rows make a kernel. A value per edge that another level
needs is computed again there, unless it takes a product or is a few numbers wide; a value
per node is kept.

A kernel multiplies by one matrix at most: registers hold no more. A product that follows another
one is therefore a level above it, and products beside each other are in different kernels.
"""

from dataclasses import dataclass, field

from torch import fx

from tremula.ir.host.rows import facts
from tremula.ir.step import CapturedStep

_NARROW = 8  # features: such values cost less to read than to compute again
_MANY_ROWS = 1 << 16  # from here on a product is bound by memory, and fused with what is around it
_MIN_OPERATIONS = 2  # of a kernel without sums into segments


@dataclass(frozen=True)
class Region:
    """A kernel: rows of one count, the nodes it computes in order, and those it leaves."""

    n_rows: int
    level: int
    nodes: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]  # sums and kept rows, in the order of the graph


@dataclass
class Space:
    """All that is done to rows of one count."""

    n_rows: int
    is_edges: bool
    operands: dict[fx.Node, list[fx.Node]] = field(default_factory=dict)  # of row-wise nodes
    sums: dict[fx.Node, list[fx.Node]] = field(default_factory=dict)  # their row-wise operands

    def operands_of(self, node: fx.Node) -> list[fx.Node]:
        return self.operands.get(node) or self.sums.get(node) or []

    def __contains__(self, node: fx.Node) -> bool:
        return node in self.operands or node in self.sums


@dataclass
class Levels:
    """Where values are computed."""

    of: dict[fx.Node, int] = field(default_factory=dict)
    products: dict[fx.Node, frozenset[fx.Node]] = field(default_factory=dict)  # on the same level
    read: set[fx.Node] = field(default_factory=set)  # by a level above, from memory


def find_regions(step: CapturedStep, many_rows: int = _MANY_ROWS) -> list[Region]:
    """The kernels of a step that sums rows into segments; none for another step.

    Products with a matrix are part of them over `many_rows` edges or more.
    """
    nodes = list(step.graph.nodes)
    spaces = _spaces(nodes, many_rows)
    levels = _levels(nodes, spaces)
    regions = [r for space in spaces.values() for r in _regions_of(space, nodes, levels)]
    return sorted(regions, key=lambda region: region.level)


def _spaces(nodes: list[fx.Node], many_rows: int) -> dict[int, Space]:
    """Counts of rows that a gather makes or a sum takes."""
    segments = [s for node in nodes if (s := facts.segment_of(node)) is not None]
    counts = {facts.n_rows_of(s.source) for s in segments}
    gathers = [g for node in nodes if (g := facts.gather_of(node)) is not None]
    tables = {facts.n_rows_of(g.table) for g in gathers}
    spaces: dict[int, Space] = {}
    taken: set[fx.Node] = set()
    for n in sorted(counts, reverse=True):
        if n >= facts.MIN_ROWS:
            is_edges = n not in tables
            free = [node for node in nodes if node not in taken]
            spaces[n] = _space(free, n, is_edges, is_edges and n >= many_rows)
            taken |= spaces[n].operands.keys() | spaces[n].sums.keys()
    return spaces


def _space(nodes: list[fx.Node], n_rows: int, is_edges: bool, has_products: bool) -> Space:
    space = Space(n_rows, is_edges)
    for node in nodes:
        if facts.is_wide_product(node) and not has_products:
            continue
        operands = facts.row_operands(node, n_rows)
        sums = _summed(node, n_rows)
        if operands is not None:
            space.operands[node] = operands
        elif sums:
            space.sums[node] = sums
    return space


def _summed(node: fx.Node, n_rows: int) -> list[fx.Node]:
    """What a node sums over rows of this count, if it does."""
    segment, column_sum = facts.segment_of(node), facts.column_sum_of(node)
    outer = facts.outer_of(node)
    if segment is not None:
        found = [segment.source, segment.index]
    elif column_sum is not None:
        found = [column_sum]
    elif outer is not None:
        found = [outer.left, outer.right]
    else:
        return []
    return found if facts.n_rows_of(found[0]) == n_rows else []


# -- levels ----------------------------------------------------------------------------------------


def _levels(nodes: list[fx.Node], spaces: dict[int, Space]) -> Levels:
    """The level of each node; that of a sum is the level of the kernel that computes it."""
    owner = {node: space for space in spaces.values() for node in (*space.operands, *space.sums)}
    levels = Levels()
    for node in nodes:
        own = owner.get(node)
        if own is None:
            at = [levels.of[x] + (x in owner) for x in node.all_input_nodes]
            levels.of[node] = max(at, default=0)
        else:
            _put_on_level(node, own, owner, levels)
    return levels


def _put_on_level(node: fx.Node, space: Space, owner: dict[fx.Node, Space], levels: Levels) -> None:
    beside = space.operands_of(node)
    whole = facts.whole_operands(node, beside) if node in space.operands else []
    at = [levels.of[x] + (x in owner) for x in whole]
    at += [levels.of[x] + (x in owner and x not in space.operands) for x in beside]
    level = max(at, default=0)
    before = {x: levels.products.get(x, frozenset()) for x in beside if levels.of[x] == level}
    products = frozenset().union(*before.values())
    own = frozenset([node]) if facts.is_wide_product(node) else frozenset()
    if len(products | own) > 1:
        levels.read.update(x for x, found in before.items() if found)
        level, products = level + 1, frozenset()
    levels.of[node] = level
    levels.products[node] = products | own


# -- kernels ---------------------------------------------------------------------------------------


def _regions_of(space: Space, nodes: list[fx.Node], levels: Levels) -> list[Region]:
    own = [node for node in nodes if node in space]
    kept = _kept(space, own, levels)
    found = []
    for level in sorted({levels.of[node] for node in own}):
        results = [
            node
            for node in own
            if levels.of[node] == level and (node in space.sums or node in kept)
        ]
        cones = {result: _cone(space, [result], kept, levels, level) for result in results}
        for group in _groups(results, cones):
            computed = _cone(space, group, kept, levels, level)
            if _is_worthwhile(computed, group):
                found.append(Region(space.n_rows, level, computed, tuple(group)))
    return found


def _kept(space: Space, own: list[fx.Node], levels: Levels) -> set[fx.Node]:
    """Row-wise values that are written to memory."""
    kept: set[fx.Node] = set()
    seen: set[fx.Node] = set()  # through a view by something else: PyTorch makes the view
    needed: dict[fx.Node, set[int]] = {}  # the levels whose kernels compute a value
    for node in reversed(own):
        if node in space.sums:
            needed[node] = {levels.of[node]}
            continue
        users = _users(node)
        inside = [user for user in users if node in space.operands_of(user)]
        at = {level for user in inside for level in needed.get(user, ())}
        is_read = len(inside) < len(users) or _is_also_whole(node) or node in levels.read
        is_read = is_read or node in seen
        if is_read and facts.is_view_of_rows(node):
            seen.update(space.operands_of(node))
        elif is_read or _is_worth_keeping(space, node, at, levels):
            kept.add(node)
            if not is_read:  # where it is used first: earlier it would wait in memory
                levels.of[node] = min(at)
            at = {levels.of[node]}
        needed[node] = at
    return kept


def _users(node: fx.Node) -> list[fx.Node]:
    """Those that read a value, also through transpositions."""
    return [
        reader
        for user in node.users
        for reader in (_users(user) if facts.is_transposition(user) else [user])
    ]


def _is_also_whole(node: fx.Node) -> bool:
    gathers = (facts.gather_of(user) for user in node.users)
    return any(g is not None and g.table is node for g in gathers)


def _is_worth_keeping(space: Space, node: fx.Node, at: set[int], levels: Levels) -> bool:
    """Whether a value that several levels need is read rather than computed again."""
    if facts.is_view_of_rows(node) or len(at) < 2:
        return False
    if levels.products[node]:
        return True
    is_gathered = facts.gather_of(node) is not None
    n_features = facts.tensor_of(node).numel() // space.n_rows
    return not space.is_edges or (n_features <= _NARROW and not is_gathered)


def _cone(
    space: Space, results: list[fx.Node], kept: set[fx.Node], levels: Levels, level: int
) -> tuple[fx.Node, ...]:
    """What a kernel computes, operands first: equal layers of a model have it in the same order.

    What a product is needed for comes before the rest, which would fill registers meanwhile.
    """
    order: dict[fx.Node, None] = {}
    waiting = [(node, False) for node in reversed(results)]
    while waiting:
        node, has_operands = waiting.pop()
        if node in order or not (node in space.operands or node in results):
            continue
        if node in kept and levels.of[node] < level:
            continue
        if has_operands:
            order[node] = None
        else:
            waiting.append((node, True))
            operands = sorted(space.operands_of(node), key=lambda x: not levels.products.get(x))
            waiting += [(x, False) for x in reversed(operands)]
    return tuple(order)


def _groups(
    results: list[fx.Node], cones: dict[fx.Node, tuple[fx.Node, ...]]
) -> list[list[fx.Node]]:
    """Results by the product they take; those without one go where most of them is computed."""
    groups: dict[fx.Node | None, list[fx.Node]] = {}
    shared: dict[fx.Node | None, set[fx.Node]] = {}
    without = []
    for result in results:
        product = next((node for node in cones[result] if facts.is_wide_product(node)), None)
        if product is None:
            without.append(result)
            continue
        groups.setdefault(product, []).append(result)
        shared.setdefault(product, set()).update(cones[result])
    for result in without:
        common = {product: len(nodes & set(cones[result])) for product, nodes in shared.items()}
        best = max(common, key=common.__getitem__, default=None)
        groups.setdefault(best if best is not None and common[best] else None, []).append(result)
    return [[r for r in results if r in group] for group in groups.values()]


def _is_worthwhile(computed: tuple[fx.Node, ...], results: list[fx.Node]) -> bool:
    has_segments = any(facts.segment_of(node) is not None for node in results)
    n_operations = sum(not facts.is_view_of_rows(node) for node in computed)
    return has_segments or n_operations >= _MIN_OPERATIONS
