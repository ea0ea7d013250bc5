"""Which rows are computed together: levels of a step, and the kernels they make.

Everything that is computed row by row and everything that sums rows is put on a *level*: a value is
one level above whatever must be complete before it, such as the table that a gather reads. The
operations of one level over the same rows make a kernel. A value per edge that another level
needs is computed again there, unless it takes a large product or is a few numbers wide; a value
per node is stored.

Sums into segments are separate kernels, unless they take a product that nothing else reads.

A kernel multiplies by as many matrices as a multiprocessor has room for (`FusionLimits`): over many
edges to save memory traffic, over few nodes to save launches. A product that does not fit next to
those before it is a level above them, and products that do not fit together are in different
kernels.
"""

from dataclasses import dataclass, field, replace

from torch import fx

from tremula.ir.host.graph_kernels import roles
from tremula.ir.host.graph_kernels.roles import RowRole, SumRole
from tremula.ir.step import CapturedStep

_NARROW = 8  # features: 32 bytes, the least that memory transfers, cost less than computing again
_MIN_OPERATIONS = 2  # of a kernel without sums into segments: ATen has a kernel for one operation
_LAST = 1 << 30  # a level above all


@dataclass(frozen=True)
class WeightBudget:
    """How many elements of matrices fit into a kernel; other products are left to cuBLAS."""

    matrix: int  # the largest that rows are multiplied by
    matrices: int  # all of a kernel together
    outer_sums: int  # all sums of outer products of a kernel: the gradients of matrices
    recomputed: int  # products by no more than this are computed again rather than stored


_NO_PRODUCTS = WeightBudget(0, 0, 0, 0)


@dataclass(frozen=True)
class FusionLimits:
    """Where products are fused with what is around them, and how many fit into a kernel."""

    many_edges: int  # from here on products over edges are bound by memory
    edges: WeightBudget
    few_nodes: int  # up to here products over nodes are bound by launches, and chains are fused
    nodes: WeightBudget
    many_summed: int = 1 << 14  # from here on rows are ordered once to be summed by segments

    def budget_for(self, n_rows: int, is_edges: bool) -> WeightBudget:
        if is_edges:
            return self.edges if n_rows >= self.many_edges else _NO_PRODUCTS
        return self.nodes if n_rows <= self.few_nodes else _NO_PRODUCTS


# Counts of rows are measured on an H200 with SchNet (docs/gpu.md, "What binds a step"). Sizes
# follow from a multiprocessor of Hopper, which has 227 KB of shared memory for matrices and up to
# 255 registers for each thread: SchNet's filter network has a matrix of 50 (padded to 64) × 128 and
# one of 128 × 128, in float32 96 KB together, so that two programs fit. A sum of 64 × 128 takes 32
# registers of each of the 256 threads of a program, sums of both matrices 96.
_LARGE, _FILTER = 128 * 128, 64 * 128
# Full float32 is three products of tensor cores, which costs more than the bytes it saves.
FLOAT32 = FusionLimits(
    many_edges=1 << 16,
    edges=WeightBudget(matrix=_FILTER, matrices=_FILTER, outer_sums=0, recomputed=0),
    few_nodes=0,
    nodes=_NO_PRODUCTS,
)
TF32 = FusionLimits(
    many_edges=1 << 10,
    edges=WeightBudget(
        matrix=_LARGE, matrices=_FILTER + _LARGE, outer_sums=_FILTER, recomputed=_FILTER
    ),
    few_nodes=1 << 14,
    nodes=WeightBudget(matrix=_LARGE, matrices=3 * _LARGE, outer_sums=0, recomputed=0),  # 192 KB
)
# A feature-major kernel has room for the gradients of all its matrices: cuBLAS needs no rows.
FEATURE_MAJOR = replace(TF32, edges=replace(TF32.edges, outer_sums=_FILTER + _LARGE))


@dataclass(frozen=True)
class Region:
    """A kernel: rows of one count, the nodes it computes in order, and its results."""

    n_rows: int
    level: int
    nodes: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]  # sums and stored rows, in the order of the graph


@dataclass
class RowSpace:
    """All that is done to rows of one count."""

    n_rows: int
    is_edges: bool
    budget: WeightBudget
    sums_by_segments: bool = False  # there are enough rows for that
    row_wise: dict[fx.Node, RowRole] = field(default_factory=dict)
    sums: dict[fx.Node, SumRole] = field(default_factory=dict)

    def operands_of(self, node: fx.Node) -> tuple[fx.Node, ...]:
        """The operands of which a node takes rows."""
        role = self.row_wise.get(node) or self.sums.get(node)
        return role.rows if role is not None else ()

    def __contains__(self, node: fx.Node) -> bool:
        return node in self.row_wise or node in self.sums


@dataclass
class Levels:
    """Where values are computed."""

    of: dict[fx.Node, int] = field(default_factory=dict)
    products: dict[fx.Node, frozenset[fx.Node]] = field(default_factory=dict)  # it is computed by
    read: set[fx.Node] = field(default_factory=set)  # by a level above, from memory


def find_regions(step: CapturedStep, limits: FusionLimits) -> list[Region]:
    """The kernels of a step that sums rows into segments; none for another step."""
    nodes = list(step.graph.nodes)
    spaces = _spaces(nodes, limits)
    levels = _levels(nodes, spaces)
    regions = [r for space in spaces.values() for r in _regions_of(space, nodes, levels)]
    return sorted(regions, key=lambda region: region.level)


def _spaces(nodes: list[fx.Node], limits: FusionLimits) -> dict[int, RowSpace]:
    """Counts of rows that a gather makes or a sum takes."""
    segments = [s for node in nodes if (s := roles.segment_sum_of(node)) is not None]
    counts = {roles.n_rows_of(s.source) for s in segments}
    gathers = [g for node in nodes if (g := roles.gather_of(node)) is not None]
    tables = {roles.n_rows_of(g.table) for g in gathers}
    spaces: dict[int, RowSpace] = {}
    taken: set[fx.Node] = set()
    for n in sorted(counts, reverse=True):
        if n >= roles.MIN_ROWS:
            is_edges = n not in tables
            free = [node for node in nodes if node not in taken]
            space = RowSpace(n, is_edges, limits.budget_for(n, is_edges), n >= limits.many_summed)
            spaces[n] = _filled(space, free)
            taken |= spaces[n].row_wise.keys() | spaces[n].sums.keys()
    return spaces


def _filled(space: RowSpace, nodes: list[fx.Node]) -> RowSpace:
    n_rows = space.n_rows
    for node in nodes:
        if roles.is_wide_product(node) and not _fits(node, space.budget):
            continue
        row_role, sum_role = roles.row_role_of(node, n_rows), roles.sum_role_of(node)
        if row_role is not None:
            space.row_wise[node] = row_role
        elif sum_role is not None and roles.n_rows_of(sum_role.rows[0]) == n_rows:
            space.sums[node] = sum_role
    return space


def _fits(product: fx.Node, budget: WeightBudget) -> bool:
    """Whether a kernel has room for the matrix of a product."""
    weight, outer = roles.weight_of(product), roles.outer_size_of(product)
    return 0 < weight <= budget.matrix or 0 < outer <= budget.outer_sums


# -- levels ----------------------------------------------------------------------------------------


def _levels(nodes: list[fx.Node], spaces: dict[int, RowSpace]) -> Levels:
    """The level of each node; that of a sum is the level of the kernel that computes it."""
    owner = {node: space for space in spaces.values() for node in (*space.row_wise, *space.sums)}
    levels = Levels()
    for node in nodes:
        space = owner.get(node)
        if space is None:
            at = [levels.of[x] + (x in owner) for x in node.all_input_nodes]
            levels.of[node] = max(at, default=0)
        else:
            _put_on_level(node, space, owner, levels)
    return levels


def _put_on_level(
    node: fx.Node, space: RowSpace, owner: dict[fx.Node, RowSpace], levels: Levels
) -> None:
    rows, role = space.operands_of(node), space.row_wise.get(node)
    whole = roles.whole_operands(node, role) if role is not None else []
    at = [levels.of[x] + (x in owner) for x in whole]
    at += [levels.of[x] + (x in owner and x not in space.row_wise) for x in rows]
    level = max(at, default=0)
    before = {x: _products_at(level, x, levels, space.budget) for x in rows}
    levels.read.update(x for x, result in before.items() if levels.products.get(x) and not result)
    products = frozenset().union(*before.values())
    here = frozenset([node]) if roles.weight_of(node) else frozenset()
    if _total_weight(products | here) > space.budget.matrices:
        levels.read.update(x for x, result in before.items() if result)
        level, products = level + 1, frozenset()
    levels.of[node] = level
    levels.products[node] = products | here


def _products_at(
    level: int, x: fx.Node, levels: Levels, budget: WeightBudget
) -> frozenset[fx.Node]:
    """The products of an operand that a kernel of a level does; what is stored below is read."""
    products = levels.products.get(x, frozenset())
    is_here = levels.of[x] == level or _total_weight(products) <= budget.recomputed
    return products if is_here else frozenset()


def _total_weight(products: frozenset[fx.Node]) -> int:
    return sum(roles.weight_of(product) for product in products)


# -- kernels ---------------------------------------------------------------------------------------


def _regions_of(space: RowSpace, nodes: list[fx.Node], levels: Levels) -> list[Region]:
    members = [node for node in nodes if node in space]
    stored = _stored(space, members, levels)
    regions = []
    for level in sorted({levels.of[node] for node in members}):
        results = [
            node
            for node in members
            if levels.of[node] == level and (node in space.sums or node in stored)
        ]
        cones = {result: _cone(space, [result], stored, levels, level) for result in results}
        apart = [r for r in results if _is_apart(r, cones[r], space, stored, levels)]
        together = [r for r in results if r not in apart]
        groups = [(group, level) for group in _groups(together, cones, space.budget)]
        groups += [(apart, level + 1)] if apart else []
        for group, reading in groups:
            computed = _cone(space, group, stored, levels, reading)
            if _is_worthwhile(computed, group):
                regions.append(Region(space.n_rows, level, computed, tuple(group)))
    return regions


def _is_apart(
    result: fx.Node,
    cone: tuple[fx.Node, ...],
    space: RowSpace,
    stored: set[fx.Node],
    levels: Levels,
) -> bool:
    """Whether a sum into segments should read values that are stored in any case.

    A kernel without products has room for more rows at a time, and one that stores nothing but sums
    can add them up segment by segment.
    """
    if roles.segment_sum_of(result) is None:
        return False
    reading = _cone(space, [result], stored, levels, levels.of[result] + 1)
    if _products_in(cone):
        return not _products_in(reading)
    read = [node for node in cone if node in stored and node not in reading]
    return space.sums_by_segments and bool(read) and all(_is_narrow(x, space) for x in read)


def _is_narrow(node: fx.Node, space: RowSpace) -> bool:
    return roles.tensor_of(node).numel() <= _NARROW * space.n_rows


def _stored(space: RowSpace, members: list[fx.Node], levels: Levels) -> set[fx.Node]:
    """Row-wise values that are written to memory."""
    stored: set[fx.Node] = set()
    seen: set[fx.Node] = set()  # through a view by something else: PyTorch makes the view
    needed: dict[fx.Node, set[int]] = {}  # the levels whose kernels compute a value
    for node in reversed(members):
        if node in space.sums:
            needed[node] = {levels.of[node]}
            continue
        users = _users(node)
        inside = [user for user in users if node in space.operands_of(user)]
        at = {level for user in inside for level in needed.get(user, ())}
        is_read = len(inside) < len(users) or _is_also_whole(node) or node in levels.read
        is_read = is_read or node in seen
        if is_read and roles.is_view_of_rows(node):
            seen.update(space.operands_of(node))
        elif not is_read and _is_computed_early(space, node, at, levels):
            stored.add(node)
            at = {levels.of[node]}
        elif is_read or _is_worth_storing(space, node, at, levels):
            stored.add(node)
            # Computed where it is used first: earlier it would take memory meanwhile.
            is_free = node not in seen and node not in levels.read
            if at and (not is_read or (is_free and min(at) < _first_reading(node, inside, levels))):
                levels.of[node] = min(at)
            at = {levels.of[node]}
        needed[node] = at
    return stored


def _first_reading(node: fx.Node, inside: list[fx.Node], levels: Levels) -> int:
    """The lowest level of what reads a value from memory."""
    whole = [user for user in node.users if user in inside and _is_table(node, user)]
    outside = [user for user in _users(node) if user not in inside]
    return min((levels.of.get(x, _LAST) for x in (*whole, *outside)), default=_LAST)


def _users(node: fx.Node) -> list[fx.Node]:
    """The nodes that read a value, also through transpositions."""
    return [
        reader
        for user in node.users
        for reader in (_users(user) if roles.is_transposition(user) else [user])
    ]


def _is_also_whole(node: fx.Node) -> bool:
    return any(_is_table(node, user) for user in node.users)


def _is_table(node: fx.Node, user: fx.Node) -> bool:
    gather = roles.gather_of(user)
    return gather is not None and gather.table is node


def _is_worth_storing(space: RowSpace, node: fx.Node, at: set[int], levels: Levels) -> bool:
    """Whether a value that several levels need is read rather than computed again."""
    if roles.is_view_of_rows(node) or len(at) < 2:
        return False
    if _total_weight(levels.products[node]) > space.budget.recomputed:
        return True
    is_gathered = roles.gather_of(node) is not None
    n_features = roles.tensor_of(node).numel() // space.n_rows
    return not space.is_edges or (n_features <= _NARROW and not is_gathered)


def _is_computed_early(space: RowSpace, node: fx.Node, at: set[int], levels: Levels) -> bool:
    """Whether a sum over features is stored by a kernel of the same level, not computed above.

    A kernel of that level has the rows in registers, if it multiplies or sums them. One above would
    read the rows again: those of all interactions, in the gradient of distances.
    """
    level = levels.of[node]
    if not at or min(at) <= level or not _is_narrow(node, space):
        return False
    rows: set[fx.Node] = set()
    waiting = list(space.operands_of(node))
    while waiting:
        row = waiting.pop()
        is_here = row in space.row_wise and levels.of[row] == level
        if is_here and row not in rows and not _is_narrow(row, space):
            rows.add(row)
            waiting += space.operands_of(row)
    users = {user for row in rows for user in _users(row)} - rows - {node}
    return _are_multiplied_or_summed(users, space, level, levels)


def _are_multiplied_or_summed(
    nodes: set[fx.Node], space: RowSpace, level: int, levels: Levels
) -> bool:
    """Whether a product or a sum of a level takes one of some values, maybe in several steps."""
    seen: set[fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node in seen or node not in space or levels.of[node] != level:
            continue
        if node in space.sums or roles.weight_of(node):
            return True
        seen.add(node)
        waiting += _users(node)
    return False


def _cone(
    space: RowSpace, results: list[fx.Node], stored: set[fx.Node], levels: Levels, level: int
) -> tuple[fx.Node, ...]:
    """What a kernel computes, operands first: equal layers of a model have it in the same order.

    Operands of products come before the rest, which would fill registers meanwhile.
    """
    order: dict[fx.Node, None] = {}
    waiting = [(node, False) for node in reversed(results)]
    while waiting:
        node, has_operands = waiting.pop()
        if node in order or not (node in space.row_wise or node in results):
            continue
        if node in stored and levels.of[node] < level:
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
        self.n_outer += roles.outer_size_of(result)

    def takes(self, result: fx.Node, products: frozenset[fx.Node], budget: WeightBudget) -> bool:
        """Whether a result that shares a product fits next to the others."""
        n_outer = self.n_outer + roles.outer_size_of(result)
        fits = _total_weight(self.products | products) <= budget.matrices
        return bool(self.products & products) and fits and n_outer <= budget.outer_sums


def _groups(
    results: list[fx.Node], cones: dict[fx.Node, tuple[fx.Node, ...]], budget: WeightBudget
) -> list[list[fx.Node]]:
    """Results grouped by the products they take; others join the group that computes most of them.

    Sums into segments that take no product are a separate kernel.
    """
    groups: list[_Group] = []
    without = _Group()
    products = {result: _products_in(cones[result]) for result in results}
    is_heavy = {r: bool(products[r]) or roles.outer_size_of(r) > 0 for r in results}
    for result in sorted(results, key=lambda r: -len(products[r])):
        if not is_heavy[result]:
            continue
        group = next((g for g in groups if g.takes(result, products[result], budget)), None)
        if group is None:
            groups.append(group := _Group())
        group.add(result, cones[result])
    for result in results:
        if is_heavy[result]:
            continue
        cone = set(cones[result])
        best = max(groups, key=lambda g: len(g.nodes & cone), default=None)
        is_alone = roles.segment_sum_of(result) is not None or best is None or not best.nodes & cone
        (without if is_alone or best is None else best).results.append(result)
    every = [*groups, without] if without.results else groups
    return [[r for r in results if r in group.results] for group in every]


def outer_size(region: Region) -> int:
    """Elements of the sums of outer products of a kernel."""
    return sum(roles.outer_size_of(result) for result in region.results)


def _products_in(cone: tuple[fx.Node, ...]) -> frozenset[fx.Node]:
    return frozenset(node for node in cone if roles.weight_of(node))


def _is_worthwhile(computed: tuple[fx.Node, ...], results: list[fx.Node]) -> bool:
    has_segments = any(roles.segment_sum_of(node) is not None for node in results)
    n_operations = sum(not roles.is_view_of_rows(node) for node in computed)
    return has_segments or n_operations >= _MIN_OPERATIONS
