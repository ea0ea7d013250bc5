"""A case as a Graph with programs."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.runtime import codelets
from tools.fuzz.case import Case
from tools.fuzz.tiles.operations import DTYPES
from tools.fuzz.tiles.reference import chunk
from tools.fuzz.tiles.views import View, tensor_of
from tremula import (
    BOOL,
    INT,
    Block,
    Call,
    Copy,
    CrossReplicaCopy,
    Engine,
    Execute,
    Graph,
    If,
    IPUModel,
    Program,
    Repeat,
    RepeatWhileFalse,
    RepeatWhileTrue,
    Sequence,
    Switch,
    Sync,
    SyncType,
    Tensor,
    WriteUndef,
)
from tremula.poplibs import popops


@dataclass
class Built:
    """A graph, its programs, and what connects it with the host."""

    graph: Graph
    programs: list[Program]
    feeds: dict[str, tuple[int, np.dtype]] = field(default_factory=dict)  # handle -> size, type
    fetches: dict[str, int] = field(default_factory=dict)  # handle -> id of the case's node
    fetched: dict[str, list[list[np.ndarray]]] = field(default_factory=dict)

    def connect(self, engine: Engine) -> None:
        """Streams count upwards, and results are collected per replica."""
        for handle, (n, dtype) in self.feeds.items():
            for replica in range(engine.n_replicas):
                engine.connect_stream_to_callback(handle, _counter(n, dtype), replica)
        for handle in self.fetches:
            rows: list[list[np.ndarray]] = [[] for _ in range(engine.n_replicas)]
            self.fetched[handle] = rows
            for replica, results in enumerate(rows):
                engine.connect_stream_to_callback(handle, _collector(results), replica)


def _counter(n: int, dtype: np.dtype) -> Callable[[np.ndarray], None]:
    count = 0

    def feed(target: np.ndarray) -> None:
        nonlocal count
        target[...] = chunk(n, count, dtype).reshape(target.shape)
        count += 1

    return feed


def _collector(results: list[np.ndarray]) -> Callable[[np.ndarray], None]:
    return lambda data: results.append(np.array(data).reshape(-1))


def build(case: Case) -> Built:
    """The graph and programs of a case."""
    return _Builder(case).build()


class _Builder:
    def __init__(self, case: Case):
        self.case = case
        n_ipus = case["chips"] * case["replicas"]
        model = IPUModel("ipu2", n_ipus=n_ipus, tiles_per_ipu=case["tiles"])
        self.graph = Graph(model.create_device(), case["replicas"])
        self.built = Built(self.graph, [])
        self.variables = [self._variable(*row) for row in enumerate(case["variables"])]
        self.sets = [self._compute_set(rows) for rows in case["sets"]]
        self.functions: list = []

    def build(self) -> Built:
        for body in self.case["functions"]:
            self.functions.append(self.graph.add_function(self.node(body), "function"))
        self.built.programs.extend(self.node(tree) for tree in self.case["programs"])
        return self.built

    def _variable(self, number: int, variable: Case) -> Tensor:
        graph, name = self.graph, f"v{number}"
        tensor = graph.add_variable(variable["type"], variable["shape"], name)
        flat = tensor.flatten()
        for start, stop, step, tile in variable["map"]:
            graph.set_tile_mapping(flat[start:stop:step], tile)
        values = np.array(variable["values"][0], np.int64).astype(DTYPES[variable["type"]])
        graph.set_initial_value(tensor, values.reshape(variable["shape"]))
        graph.create_host_read(name, tensor)
        graph.create_host_write(name, tensor)
        return tensor

    def tensor(self, view: View) -> Tensor:
        return tensor_of(view, self.variables)

    def _compute_set(self, rows: list[Case]) -> object:
        compute_set = self.graph.add_compute_set("work")
        for vertex in rows:
            edges = {name: self._edge(edge) for name, edge in vertex["edges"].items()}
            codelet = getattr(codelets, vertex["codelet"])
            fields = {**edges, **vertex["state"]}
            self.graph.add_vertex(compute_set, codelet, fields, tile=vertex["tile"])
        return compute_set

    def _edge(self, edge: Case | list) -> Tensor | list[Tensor]:
        if isinstance(edge, list):
            return [self.tensor(view) for view in edge]
        return list(self.tensor(edge["each"])) if "each" in edge else self.tensor(edge)

    # -- programs ----------------------------------------------------------------------------------

    def node(self, node: Case) -> Program:
        return getattr(self, f"do_{node['do']}")(node)

    def do_sequence(self, node: Case) -> Program:
        return Sequence([self.node(step) for step in node["steps"]])

    def do_block(self, node: Case) -> Program:
        return Block(self.node(node["body"]), name="block")

    def do_repeat(self, node: Case) -> Program:
        return Repeat(node["times"], self.node(node["body"]))

    def do_while(self, node: Case) -> Program:
        graph, by, tile = self.graph, node["by"], node["tile"]
        n = graph.add_variable(INT, [], "n", mapping=tile)
        go = graph.add_variable(BOOL, [], "go", mapping=tile)
        start = graph.add_constant(INT, [], node["count"])
        count = graph.add_compute_set("countdown")
        fields = {"n": n, "go": go, "inverted": int(by == "until")}
        graph.add_vertex(count, codelets.Countdown, fields, tile=tile)
        body = self.node(node["body"])
        if by == "result":
            left = graph.add_variable(INT, [], "left", mapping=tile)
            return Sequence(Copy(start, n), RepeatWhileTrue(Execute(count, left), left, body))
        loop = RepeatWhileFalse if by == "until" else RepeatWhileTrue
        return Sequence(Copy(start, n), loop(Execute(count), go, body))

    def do_if(self, node: Case) -> Program:
        on, then = self.tensor(node["on"]), self.node(node["then"])
        return If(on, then, self.node(node["else"])) if "else" in node else If(on, then)

    def do_switch(self, node: Case) -> Program:
        control = self.tensor(node["on"])
        cases = [(value, self.node(body)) for value, body in node["cases"]]
        if "default" in node:
            return Switch(control, cases, self.node(node["default"]))
        return Switch(control, cases)

    def do_call(self, node: Case) -> Program:
        return Call(self.functions[node["function"]])

    def do_sync(self, node: Case) -> Program:
        return Sync(SyncType[node["kind"]])

    def do_undef(self, node: Case) -> Program:
        return WriteUndef(self.tensor(node["what"]))

    def do_copy(self, node: Case) -> Program:
        return Copy(self.tensor(node["from"]), self.tensor(node["to"]))

    def do_across(self, node: Case) -> Program:
        source, target = self.tensor(node["from"]), self.tensor(node["to"])
        return CrossReplicaCopy(source, target, dict(enumerate(node["replicas"])))

    def do_feed(self, node: Case) -> Program:
        target = self.tensor(node["to"])
        handle = f"feed{len(self.built.feeds)}"
        self.built.feeds[handle] = (target.n_elems, target.type.dtype)
        stream = self.graph.add_host_to_device_fifo(handle, target.type, target.n_elems)
        return Copy(stream, target)

    def do_fetch(self, node: Case) -> Program:
        source = self.tensor(node["from"])
        handle = f"fetch{len(self.built.fetches)}"
        self.built.fetches[handle] = id(node)
        return Copy(source, self.graph.add_device_to_host_fifo(handle, source.type, source.n_elems))

    def do_execute(self, node: Case) -> Program:
        compute_set = self.sets[node["set"]]
        if "result" not in node:
            return Execute(compute_set)
        return Execute(compute_set, self.tensor(node["result"]))

    def do_operate(self, node: Case) -> Program:
        sequence = Sequence()
        ins, to = [self.tensor(view) for view in node["ins"]], self.tensor(node["to"])
        if node["form"] == "output":
            getattr(popops, f"{node['op']}_with_output")(self.graph, *ins, to, sequence)
        elif node["form"] == "in place" and node["ins"][0] == node["to"]:
            getattr(popops, f"{node['op']}_in_place")(self.graph, *ins, sequence)
        else:
            result = getattr(popops, node["op"])(self.graph, *ins, sequence)
            sequence.add(Copy(result, to))
        return sequence

    def do_reduce(self, node: Case) -> Program:
        sequence = Sequence()
        source, to = self.tensor(node["from"]), self.tensor(node["to"])
        popops.reduce_with_output(self.graph, source, to, [node["axis"]], node["op"], sequence)
        return sequence

    def do_cast(self, node: Case) -> Program:
        sequence = Sequence()
        popops.cast_with_output(
            self.graph, self.tensor(node["from"]), self.tensor(node["to"]), sequence
        )
        return sequence
