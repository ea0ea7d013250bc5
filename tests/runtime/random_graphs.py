"""Random graphs and programs that are legal: every step is free of races and every loop ends."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from tests.runtime.codelets import PLAIN, Blend, Collect, Countdown, Mark, Mirror, Spread
from tests.runtime.reference_interpreter import PlainVertex, ReferenceInterpreter
from tremula import (
    BOOL,
    FLOAT,
    HALF,
    INT,
    LONGLONG,
    UNSIGNED_CHAR,
    Block,
    Call,
    Copy,
    Execute,
    Graph,
    If,
    IPUModel,
    Repeat,
    RepeatWhileFalse,
    RepeatWhileTrue,
    Sequence,
    Switch,
    Sync,
    SyncType,
    WriteUndef,
    concat,
)

N_TILES = 4
TYPES = (FLOAT, INT, HALF, UNSIGNED_CHAR, BOOL, LONGLONG)
Draw = Callable


@dataclass
class World:
    """A graph, its variables by type, and its vertices as the reference interpreter sees them."""

    graph: Graph
    draw: Draw
    tensors: dict = field(default_factory=dict)  # type -> list of tensors
    vertices: dict = field(default_factory=dict)  # compute set -> list of PlainVertex
    functions: list = field(default_factory=list)
    n_steps: int = 0

    def reference(self) -> ReferenceInterpreter:
        return ReferenceInterpreter(self.graph, self.vertices)

    def all_tensors(self) -> dict:
        return {f"{t.type.name}{i}": t for ts in self.tensors.values() for i, t in enumerate(ts)}


def make_world(draw: Draw, replication_factor: int = 1, n_ipus: int = 1) -> World:
    """Two variables of every type, mapped and filled at random; chips share the tiles."""
    per_ipu = N_TILES // n_ipus
    model = IPUModel("ipu2", n_ipus=n_ipus * replication_factor, tiles_per_ipu=per_ipu)
    graph = Graph(model.create_device(), replication_factor)
    world = World(graph, draw)
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    for type in TYPES:
        world.tensors[type] = []
        for shape in ([12], [2, 3]):
            tensor = graph.add_variable(type, shape, f"{type.name}{len(world.tensors[type])}")
            for part in _cut(draw, tensor.flatten()):
                graph.set_tile_mapping(part, draw(st.integers(0, N_TILES - 1)))
            low = 0 if type.dtype.kind in "ub" else -8
            high = 2 if type is BOOL else 250 if type is UNSIGNED_CHAR else 8
            graph.set_initial_value(tensor, random.integers(low, high, shape))
            world.tensors[type].append(tensor)
    for name, tensor in world.all_tensors().items():
        graph.create_host_read(name, tensor)
        graph.create_host_write(name, tensor)
    return world


# -- views -----------------------------------------------------------------------------------------


def _cut(draw: Draw, flat) -> list:
    """A flat tensor in disjoint parts: ranges, or every k-th element."""
    if draw(st.booleans()):
        k = draw(st.integers(1, 3))
        return [flat[r::k] for r in range(k)]
    cuts = sorted(draw(st.lists(st.integers(0, flat.n_elems), max_size=2)))
    ends = [0, *cuts, flat.n_elems]
    return [flat[a:b] for a, b in itertools.pairwise(ends)]


def disjoint_views(world: World, tensors: list) -> list:
    """Views that share no element: parts of tensors, some reversed, some joined."""
    draw = world.draw
    parts = [part for tensor in tensors for part in _cut(draw, tensor.flatten()) if part.n_elems]
    parts = [part.reverse() if draw(st.booleans()) else part for part in parts]
    if len(parts) > 1 and draw(st.booleans()):
        return [concat([parts[0], parts[-1]]), *parts[1:-1]]
    return draw(st.permutations(parts))


def any_view(world: World, tensors: list):
    """A flat view that may repeat elements and join variables; not empty."""
    draw = world.draw
    parts = []
    for tensor in draw(st.lists(st.sampled_from(tensors), min_size=1, max_size=2)):
        flat = tensor.flatten() if draw(st.booleans()) else _shuffled(tensor).flatten()
        part = draw(st.sampled_from([p for p in _cut(draw, flat) if p.n_elems]))
        parts.append(part.broadcast(draw(st.integers(1, 2))))
    view = concat(parts)
    return view.reverse() if draw(st.booleans()) else view


def _shuffled(tensor):
    return tensor.dim_shuffle(list(reversed(range(tensor.rank))))


def of_size(view, n: int):
    """A view of exactly n elements, repeated or cut."""
    return view.broadcast(-(-n // view.n_elems))[:n]


# -- compute sets ----------------------------------------------------------------------------------


def compute_set(world: World):
    """Up to one table of each codelet; written variables are not read by other vertices."""
    draw, graph = world.draw, world.graph
    cs = graph.add_compute_set(f"cs{len(world.vertices)}")
    world.vertices[cs] = []
    makers = draw(st.lists(st.sampled_from(MAKERS), min_size=1, max_size=3, unique=True))
    for maker in makers:
        maker(world, cs)
    return cs


def add(world: World, cs, codelet, edges: dict, written: set, state: dict) -> None:
    tile = world.draw(st.integers(0, N_TILES - 1))
    world.graph.add_vertex(cs, codelet, {**edges, **state}, tile=tile)
    world.vertices[cs].append(PlainVertex(PLAIN[codelet], edges, written, dict(state)))


def _split(world: World, type) -> tuple[list, list]:
    """(variables to write, variables to read) of a type."""
    first, second = world.draw(st.permutations(world.tensors[type]))
    return [first], [second]


def _some(world: World, views: list) -> list:
    return views[: world.draw(st.integers(1, 3))]


def add_blends(world: World, cs) -> None:
    targets, sources = _split(world, FLOAT)
    for y in _some(world, disjoint_views(world, targets)):
        x = any_view(world, sources)[: world.draw(st.integers(0, 5))]
        shift = world.draw(st.integers(-4, 4))
        add(world, cs, Blend, {"x": x, "y": y}, {"y"}, {"shift": float(shift)})


def add_mirrors(world: World, cs) -> None:
    targets, sources = _split(world, HALF)
    for x in _some(world, disjoint_views(world, targets)):
        add(world, cs, Mirror, {"x": x, "centre": any_view(world, sources)[0]}, {"x"}, {})


def add_marks(world: World, cs) -> None:
    for flags in _some(world, disjoint_views(world, world.tensors[BOOL])):
        data = any_view(world, world.tensors[UNSIGNED_CHAR])
        add(world, cs, Mark, {"bytes": data, "flags": flags}, {"flags"}, {"calls": 0})


def add_collects(world: World, cs) -> None:
    targets, sources = _split(world, INT)
    views = disjoint_views(world, targets)
    for total in _some(world, [view[0] for view in views]):
        rows = [any_view(world, sources) for _ in range(world.draw(st.integers(0, 2)))]
        add(world, cs, Collect, {"rows": rows, "total": total}, {"total"}, {})


def add_spreads(world: World, cs) -> None:
    targets, sources = _split(world, INT)
    for out in _some(world, disjoint_views(world, targets)):
        steps = world.draw(st.lists(st.integers(-9, 9), min_size=1, max_size=3))
        edges = {"first": any_view(world, sources)[0], "out": list(out)}
        add(world, cs, Spread, edges, {"out"}, {"steps": steps})


def _add_ints(world: World, cs) -> None:
    """Collect and Spread both write ints, so only one of them is in a compute set."""
    world.draw(st.sampled_from([add_collects, add_spreads]))(world, cs)


MAKERS = [add_blends, add_mirrors, add_marks, _add_ints]


# -- programs --------------------------------------------------------------------------------------


def program(world: World, depth: int = 3):
    """A random program of limited size."""
    world.n_steps += 1
    leaves = [execute, execute, copy, copy, sync, undef]
    branches = [sequence, repeat, while_loop, if_else, switch, call, block]
    choices = leaves + branches * 2 if depth > 0 and world.n_steps < 25 else leaves
    return world.draw(st.sampled_from(choices))(world, depth - 1)


def sequence(world: World, depth: int):
    return Sequence([program(world, depth) for _ in range(world.draw(st.integers(0, 4)))])


def block(world: World, depth: int):
    return Block(program(world, depth), name="block")


def execute(world: World, _: int):
    reuse = world.draw(st.booleans()) and world.vertices
    cs = world.draw(st.sampled_from(list(world.vertices))) if reuse else compute_set(world)
    if world.draw(st.booleans()):
        return Execute(cs)
    return Execute(cs, a_scalar(world, (BOOL, INT, UNSIGNED_CHAR)))


def a_scalar(world: World, types):
    tensors = [t for type in types for t in world.tensors[type]]
    flat = world.draw(st.sampled_from(tensors)).flatten()
    return flat[world.draw(st.integers(0, flat.n_elems - 1))]


def copy(world: World, _: int):
    """Any view to any view without repetition, of the same variables or not."""
    tensors = world.tensors[world.draw(st.sampled_from(TYPES))]
    destination = world.draw(st.sampled_from(disjoint_views(world, tensors)))
    return Copy(of_size(any_view(world, tensors), destination.n_elems), destination)


def sync(world: World, _: int):
    return Sync(world.draw(st.sampled_from(list(SyncType))))


def undef(world: World, _: int):
    return WriteUndef(any_view(world, world.tensors[LONGLONG]))


def repeat(world: World, depth: int):
    return Repeat(world.draw(st.integers(0, 3)), program(world, depth))


def while_loop(world: World, depth: int):
    """A loop with a separate counter, controlled by a flag or by the result of Execute."""
    draw, graph = world.draw, world.graph
    tile = draw(st.integers(0, N_TILES - 1))
    n = graph.add_variable(INT, [], "n", mapping=tile)
    go = graph.add_variable(BOOL, [], "go", mapping=tile)
    start = graph.add_constant(INT, [], draw(st.integers(0, 3)))
    by_result, until = draw(st.booleans()), draw(st.booleans())
    cs = graph.add_compute_set("countdown")
    inverted = int(until and not by_result)
    edges = {"n": n, "go": go}
    state = {"inverted": inverted}
    graph.add_vertex(cs, Countdown, {**edges, **state}, tile=tile)
    world.vertices[cs] = [PlainVertex(PLAIN[Countdown], edges, {"n", "go"}, state)]
    body = program(world, depth)
    if by_result:
        left = graph.add_variable(INT, [], "left", mapping=tile)
        return Sequence(Copy(start, n), RepeatWhileTrue(Execute(cs, left), left, body))
    loop = RepeatWhileFalse if until else RepeatWhileTrue
    return Sequence(Copy(start, n), loop(Execute(cs), go, body))


def if_else(world: World, depth: int):
    predicate = a_scalar(world, (BOOL, INT, UNSIGNED_CHAR, LONGLONG))
    if world.draw(st.booleans()):
        return If(predicate, program(world, depth))
    return If(predicate, program(world, depth), program(world, depth))


def switch(world: World, depth: int):
    control = a_scalar(world, (INT, UNSIGNED_CHAR, BOOL))
    # Initial values of the control are likely cases, so that they are taken.
    value = int(world.reference().read(control))
    low, high = {INT: (-9, 9), UNSIGNED_CHAR: (0, 255), BOOL: (0, 1)}[control.type]
    values = {value, *world.draw(st.lists(st.integers(low, high), max_size=2))}
    cases = [(v, program(world, depth)) for v in sorted(values)]
    return Switch(control, cases, program(world, depth)) if depth > 0 else Switch(control, cases)


def call(world: World, depth: int):
    if world.functions and world.draw(st.booleans()):
        return Call(world.draw(st.sampled_from(world.functions)))
    body = program(world, depth)  # its functions are complete before this one exists: no recursion
    world.functions.append(world.graph.add_function(body, "function"))
    return Call(world.functions[-1])
