"""Which rows are computed together: levels of a step, and the kernels they make.

Everything that is computed row by row and everything that sums rows is put on a *level*: a value is
one level above whatever must be complete before it, such as the table that a gather reads. The
operations of one level over the same rows make a kernel. A value per edge that another level
needs is computed again there, unless it takes a large product or is a few numbers wide; a value
per node is kept.

Sums into segments are kernels of their own, unless they take a product that nothing else reads.

A kernel multiplies by as many matrices as a multiprocessor can hold (`Limits`): over many edges to
save memory, over few nodes to save launches. A product that is too much beside those before it is a
level above them, and products beside each other that are too much together are in different
kernels.
"""

from dataclasses import dataclass, field, replace

from torch import fx

from tremula.ir.host.graph_kernels import facts
from tremula.ir.step import CapturedStep

_NARROW = 8  # features: such values cost less to read than to compute again
_MIN_OPERATIONS = 2  # of a kernel without sums into segments
_LAST = 1 << 30  # a level above all


@dataclass(frozen=True)
class Held:
    """What a kernel holds, in elements of matrices; the rest is left to cuBLAS."""

    weight: int  # one matrix that rows are multiplied by
    weights: int  # all of a kernel
    outer: int  # all sums of outer products of a kernel: the gradients of matrices
    again: int  # products by no more than this are computed again rather than kept


_NO_PRODUCTS = Held(0, 0, 0, 0)


@dataclass(frozen=True)
class Limits:
    """Where products are fused with what is around them, and how many a kernel holds."""

    many_edges: int  # from here on products are bound by memory
    edges: Held
    few_nodes: int  # up to here they are bound by launches, and chains of them are one
    nodes: Held
    many_summed: int = 1 << 14  # from here on rows are ordered once to be summed by segments

    def held_by(self, n_rows: int, is_edges: bool) -> Held:
        if is_edges:
            return self.edges if n_rows >= self.many_edges else _NO_PRODUCTS
        return self.nodes if n_rows <= self.few_nodes else _NO_PRODUCTS


# Full float32 is three products of tensor cores, which costs more than the bytes it saves.
EXACT = Limits(
    many_edges=1 << 16,
    edges=Held(weight=64 * 128, weights=64 * 128, outer=0, again=0),
    few_nodes=0,
    nodes=_NO_PRODUCTS,
)
ROUNDED = Limits(
    many_edges=1 << 10,
    edges=Held(weight=128 * 128, weights=(64 + 128) * 128, outer=64 * 128, again=64 * 128),
    few_nodes=1 << 14,
    nodes=Held(weight=128 * 128, weights=3 * 128 * 128, outer=0, again=0),
)
# Where tiles stand a kernel holds the gradients of all its matrices: no row is kept for cuBLAS.
STANDING_TILES = replace(ROUNDED, edges=replace(ROUNDED.edges, outer=(64 + 128) * 128))


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
    held: Held
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
    products: dict[fx.Node, frozenset[fx.Node]] = field(default_factory=dict)  # it is computed by
    read: set[fx.Node] = field(default_factory=set)  # by a level above, from memory


def find_regions(step: CapturedStep, limits: Limits) -> list[Region]:
    """The kernels of a step that sums rows into segments; none for another step."""
    nodes = list(step.graph.nodes)
    spaces = _spaces(nodes, limits)
    levels = _levels(nodes, spaces)
    regions = [r for space in spaces.values() for r in _regions_of(space, nodes, levels)]
    return sorted(regions, key=lambda region: region.level)


def _spaces(nodes: list[fx.Node], limits: Limits) -> dict[int, Space]:
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
            spaces[n] = _space(free, n, is_edges, limits.held_by(n, is_edges))
            taken |= spaces[n].operands.keys() | spaces[n].sums.keys()
    return spaces


def _space(nodes: list[fx.Node], n_rows: int, is_edges: bool, held: Held) -> Space:
    space = Space(n_rows, is_edges, held)
    for node in nodes:
        if facts.is_wide_product(node) and not _is_held(node, held):
            continue
        operands = facts.row_operands(node, n_rows)
        sums = _summed(node, n_rows)
        if operands is not None:
            space.operands[node] = operands
        elif sums:
            space.sums[node] = sums
    return space


def _is_held(product: fx.Node, held: Held) -> bool:
    """Whether a kernel can hold the matrix of a product."""
    weight, outer = facts.weight_of(product), facts.outer_size_of(product)
    return 0 < weight <= held.weight or 0 < outer <= held.outer


def _summed(node: fx.Node, n_rows: int) -> list[fx.Node]:
    """What a node sums over rows of this count, if it does."""
    segment, column_sum = facts.segment_of(node), facts.column_sum_of(node)
    outer = facts.outer_of(node)
    if segment is not None:
        result = [segment.source, segment.index]
    elif column_sum is not None:
        result = [column_sum]
    elif outer is not None:
        result = [outer.left, outer.right]
    else:
        return []
    return result if facts.n_rows_of(result[0]) == n_rows else []


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
    before = {x: _products_at(level, x, levels, space.held) for x in beside}
    products = frozenset().union(*before.values())
    own = frozenset([node]) if facts.weight_of(node) else frozenset()
    if _total_weight(products | own) > space.held.weights:
        levels.read.update(x for x, result in before.items() if result)
        level, products = level + 1, frozenset()
    levels.of[node] = level
    levels.products[node] = products | own


def _products_at(level: int, x: fx.Node, levels: Levels, held: Held) -> frozenset[fx.Node]:
    """The products that a kernel of a level does for an operand; values kept below are read."""
    products = levels.products.get(x, frozenset())
    is_here = levels.of[x] == level or _total_weight(products) <= held.again
    return products if is_here else frozenset()


def _total_weight(products: frozenset[fx.Node]) -> int:
    return sum(facts.weight_of(product) for product in products)


# -- kernels ---------------------------------------------------------------------------------------


def _regions_of(space: Space, nodes: list[fx.Node], levels: Levels) -> list[Region]:
    own = [node for node in nodes if node in space]
    kept = _kept(space, own, levels)
    matches = []
    for level in sorted({levels.of[node] for node in own}):
        results = [
            node
            for node in own
            if levels.of[node] == level and (node in space.sums or node in kept)
        ]
        cones = {result: _cone(space, [result], kept, levels, level) for result in results}
        apart = [r for r in results if _is_apart(r, cones[r], space, kept, levels)]
        together = [r for r in results if r not in apart]
        groups = [(group, level) for group in _groups(together, cones, space.held)]
        groups += [(apart, level + 1)] if apart else []
        for group, reading in groups:
            computed = _cone(space, group, kept, levels, reading)
            if _is_worthwhile(computed, group):
                matches.append(Region(space.n_rows, level, computed, tuple(group)))
    return matches


def _is_apart(
    result: fx.Node, cone: tuple[fx.Node, ...], space: Space, kept: set[fx.Node], levels: Levels
) -> bool:
    """Whether a sum into segments needs no product but those of values that are kept in any case.

    Then it reads them: a kernel without products has room for more rows at a time.
    """
    if facts.segment_of(result) is None or not _products_in(cone):
        return False
    reading = _cone(space, [result], kept, levels, levels.of[result] + 1)
    return not _products_in(reading)


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
            # Where it is used first: earlier it would wait in memory.
            is_free = node not in seen and node not in levels.read
            if at and (not is_read or (is_free and min(at) < _first_reading(node, inside, levels))):
                levels.of[node] = min(at)
            at = {levels.of[node]}
        needed[node] = at
    return kept


def _first_reading(node: fx.Node, inside: list[fx.Node], levels: Levels) -> int:
    """The lowest level of what reads a value from memory."""
    whole = [user for user in node.users if user in inside and _is_table(node, user)]
    outside = [user for user in _users(node) if user not in inside]
    return min((levels.of.get(x, _LAST) for x in (*whole, *outside)), default=_LAST)


def _users(node: fx.Node) -> list[fx.Node]:
    """Those that read a value, also through transpositions."""
    return [
        reader
        for user in node.users
        for reader in (_users(user) if facts.is_transposition(user) else [user])
    ]


def _is_also_whole(node: fx.Node) -> bool:
    return any(_is_table(node, user) for user in node.users)


def _is_table(node: fx.Node, user: fx.Node) -> bool:
    gather = facts.gather_of(user)
    return gather is not None and gather.table is node


def _is_worth_keeping(space: Space, node: fx.Node, at: set[int], levels: Levels) -> bool:
    """Whether a value that several levels need is read rather than computed again."""
    if facts.is_view_of_rows(node) or len(at) < 2:
        return False
    if _total_weight(levels.products[node]) > space.held.again:
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


@dataclass
class _Group:
    """Results of one kernel: what they are computed from, its products and outer products."""

    results: list[fx.Node] = field(default_factory=list)
    nodes: set[fx.Node] = field(default_factory=set)
    products: frozenset[fx.Node] = frozenset()
    n_outer: int = 0  # elements of sums of outer products

    def add(self, result: fx.Node, cone: tuple[fx.Node, ...]) -> None:
        self.results.append(result)
        self.nodes.update(cone)
        self.products |= _products_in(cone)
        self.n_outer += facts.outer_size_of(result)

    def takes(self, result: fx.Node, products: frozenset[fx.Node], held: Held) -> bool:
        """Whether a result that shares a product fits beside the others."""
        n_outer = self.n_outer + facts.outer_size_of(result)
        fits = _total_weight(self.products | products) <= held.weights
        return bool(self.products & products) and fits and n_outer <= held.outer


def _groups(
    results: list[fx.Node], cones: dict[fx.Node, tuple[fx.Node, ...]], held: Held
) -> list[list[fx.Node]]:
    """Results by the products they take; those without one go where most of them is computed.

    Sums into segments are a kernel of their own unless they take a product themselves.
    """
    groups: list[_Group] = []
    without = _Group()
    products = {result: _products_in(cones[result]) for result in results}
    is_heavy = {r: bool(products[r]) or facts.outer_size_of(r) > 0 for r in results}
    for result in sorted(results, key=lambda r: -len(products[r])):
        if not is_heavy[result]:
            continue
        group = next((g for g in groups if g.takes(result, products[result], held)), None)
        if group is None:
            groups.append(group := _Group())
        group.add(result, cones[result])
    for result in results:
        if is_heavy[result]:
            continue
        cone = set(cones[result])
        best = max(groups, key=lambda g: len(g.nodes & cone), default=None)
        is_alone = facts.segment_of(result) is not None or best is None or not best.nodes & cone
        (without if is_alone or best is None else best).results.append(result)
    matches = [*groups, without] if without.results else groups
    return [[r for r in results if r in group.results] for group in matches]


def outer_size(region: Region) -> int:
    """Elements of the sums of outer products that a kernel holds."""
    return sum(facts.outer_size_of(result) for result in region.results)


def _products_in(cone: tuple[fx.Node, ...]) -> frozenset[fx.Node]:
    return frozenset(node for node in cone if facts.weight_of(node))


def _is_worthwhile(computed: tuple[fx.Node, ...], results: list[fx.Node]) -> bool:
    has_segments = any(facts.segment_of(node) is not None for node in results)
    n_operations = sum(not facts.is_view_of_rows(node) for node in computed)
    return has_segments or n_operations >= _MIN_OPERATIONS
