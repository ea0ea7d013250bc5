"""What a tile program computes: an interpreter of cases, obviously correct, on NumPy arrays.

It shares no code with the product: views are arrays of indices, vertices are functions on arrays.
"""

from collections.abc import Callable

import numpy as np

from tests.runtime.codelets import PLAIN
from tools.fuzz.case import Case, IllegalCase
from tools.fuzz.tiles.operations import DTYPES, ELEMENT_RULES, REDUCTIONS
from tools.fuzz.tiles.views import Layout, View

FUNCTIONS: dict[str, Callable] = {codelet.__name__: plain for codelet, plain in PLAIN.items()}
WRITTEN = {
    "Blend": "y", "Collect": "total", "Mirror": "x", "Mark": "flags", "Spread": "out",
}  # fmt: skip
MOST_NODES = 20_000  # nodes run: more is an endless or a very long case


class Diverged(Exception):
    """Replicas disagree about a branch: the product must say so."""


class Reference:
    """Memory of all replicas, vertex states and streams of one case."""

    def __init__(self, case: Case):
        self.case = case
        self.layout = Layout(case["variables"])
        self.n_replicas = case["replicas"]
        self.memory = [self._initial(replica) for replica in range(self.n_replicas)]
        self.states = [
            [[_state(vertex) for vertex in rows] for rows in case["sets"]]
            for _ in range(self.n_replicas)
        ]
        self.fed: dict[int, int] = {}  # how often each stream was read, by the id of its node
        self.fetched: dict[int, list[list[np.ndarray]]] = {}
        self.n_nodes = 0
        self._indices: dict[int, np.ndarray] = {}

    def _initial(self, replica: int) -> dict[str, np.ndarray]:
        arrays = {type: np.zeros(n, DTYPES[type]) for type, n in self.layout.n_elems.items()}
        for number, variable in enumerate(self.case["variables"]):
            rows = variable["values"]
            if not rows or len(rows[0]) != self.layout.variable(number).size:
                raise IllegalCase("values for every element")
            values = np.array(rows[replica % len(rows)], np.int64)
            index = self.layout.variable(number).reshape(-1)
            arrays[variable["type"]][index] = values.astype(DTYPES[variable["type"]])
        return arrays

    # -- memory ------------------------------------------------------------------------------------

    def index(self, view: View) -> np.ndarray:
        key = id(view)
        if key not in self._indices:
            self._indices[key] = self.layout.indices(view)
        return self._indices[key]

    def read(self, view: View, replica: int) -> np.ndarray:
        return self.memory[replica][self.layout.type_of(view)][self.index(view)]

    def write(self, view: View, values: np.ndarray, replica: int) -> None:
        array = self.memory[replica][self.layout.type_of(view)]
        index = self.index(view)
        if len(np.unique(index)) != index.size:
            raise IllegalCase("a written view repeats an element")
        if np.shape(values) != index.shape:
            raise IllegalCase(f"{np.shape(values)} into {index.shape}")
        array[index] = values

    def variable(self, number: int, replica: int) -> np.ndarray:
        index = self.layout.variable(number)
        return self.memory[replica][self.layout.types[number]][index]

    def agreed(self, view: View) -> int:
        """The value of a control scalar, which all replicas must share."""
        if self.index(view).shape:
            raise IllegalCase("a predicate is a scalar")
        values = {int(self.read(view, replica)) for replica in range(self.n_replicas)}
        if len(values) > 1:
            raise Diverged
        return values.pop()

    def agrees_on(self, view: View) -> bool:
        """Whether a predicate is true; replicas may have different values that are all true."""
        if self.index(view).shape:
            raise IllegalCase("a predicate is a scalar")
        values = {bool(self.read(view, replica)) for replica in range(self.n_replicas)}
        if len(values) > 1:
            raise Diverged
        return values.pop()

    # -- programs ----------------------------------------------------------------------------------

    def run(self, program: int) -> None:
        if not 0 <= program < len(self.case["programs"]):
            raise IllegalCase(f"no program {program}")
        with np.errstate(all="ignore"):
            self.node(self.case["programs"][program])

    def node(self, node: Case) -> None:
        self.n_nodes += 1
        if self.n_nodes > MOST_NODES:
            raise IllegalCase("a program that ends soon")
        getattr(self, f"do_{node['do']}")(node)

    def do_sequence(self, node: Case) -> None:
        for step in node["steps"]:
            self.node(step)

    def do_block(self, node: Case) -> None:
        self.node(node["body"])

    def do_repeat(self, node: Case) -> None:
        for _ in range(node["times"]):
            self.node(node["body"])

    def do_while(self, node: Case) -> None:
        """The condition counts down before each iteration, and continues above zero."""
        for _ in range(node["count"] - 1):
            self.node(node["body"])

    def do_if(self, node: Case) -> None:
        taken = node.get("then") if self.agrees_on(node["on"]) else node.get("else")
        if taken is not None:
            self.node(taken)

    def do_switch(self, node: Case) -> None:
        values = [value for value, _ in node["cases"]]
        if len(set(values)) != len(values):
            raise IllegalCase("each case once")
        taken = dict(map(tuple, node["cases"])).get(self.agreed(node["on"]), node.get("default"))
        if taken is not None:
            self.node(taken)

    def do_call(self, node: Case) -> None:
        if not 0 <= node["function"] < len(self.case["functions"]):
            raise IllegalCase("a function that exists")
        self.node(self.case["functions"][node["function"]])

    def do_sync(self, node: Case) -> None:
        """Takes time, changes nothing."""

    def do_undef(self, node: Case) -> None:
        """Says that data no longer matters; it stays."""
        self.index(node["what"])

    def do_copy(self, node: Case) -> None:
        self._same_type(node["from"], node["to"])
        for replica in range(self.n_replicas):
            self.write(node["to"], self.read(node["from"], replica), replica)

    def do_across(self, node: Case) -> None:
        self._same_type(node["from"], node["to"])
        if sorted(node["replicas"]) != list(range(self.n_replicas)):
            raise IllegalCase("a permutation of replicas")
        values = [self.read(node["from"], replica) for replica in range(self.n_replicas)]
        for source, target in enumerate(node["replicas"]):
            self.write(node["to"], values[source], target)

    def _same_type(self, source: View, target: View) -> None:
        if self.layout.type_of(source) != self.layout.type_of(target):
            raise IllegalCase("views of one type")

    # -- streams -----------------------------------------------------------------------------------

    def do_feed(self, node: Case) -> None:
        for replica in range(self.n_replicas):
            count = self.fed.get(id(node), 0)
            dtype = np.dtype(DTYPES[self.layout.type_of(node["to"])])
            self.write(node["to"], chunk(self.index(node["to"]).size, count, dtype), replica)
        self.fed[id(node)] = self.fed.get(id(node), 0) + 1

    def do_fetch(self, node: Case) -> None:
        rows = self.fetched.setdefault(id(node), [[] for _ in range(self.n_replicas)])
        for replica in range(self.n_replicas):
            rows[replica].append(self.read(node["from"], replica).reshape(-1).copy())

    # -- compute -----------------------------------------------------------------------------------

    def do_execute(self, node: Case) -> None:
        if not 0 <= node["set"] < len(self.case["sets"]):
            raise IllegalCase("a compute set that exists")
        vertices = self.case["sets"][node["set"]]
        self._check_races(vertices)
        for replica in range(self.n_replicas):
            states = self.states[replica][node["set"]]
            results = [self._vertex(*row, replica) for row in zip(vertices, states, strict=True)]
            if "result" in node:
                self.write(node["result"], np.array(all(results)), replica)

    def _vertex(self, vertex: Case, state: dict, replica: int) -> bool:
        fields = {name: self._fields(edge, replica) for name, edge in vertex["edges"].items()}
        result = FUNCTIONS[vertex["codelet"]](fields, state)
        name = WRITTEN[vertex["codelet"]]
        edge, values = vertex["edges"][name], fields[name]
        if "each" in edge:
            self.write(edge["each"], np.concatenate(values), replica)
        else:
            self.write(edge, values.reshape(self.index(edge).shape), replica)
        return True if result is None else bool(result)

    def _fields(self, edge: Case | list, replica: int) -> np.ndarray | list[np.ndarray]:
        if isinstance(edge, list):
            return [self.read(view, replica).reshape(-1) for view in edge]
        if "each" in edge:
            return [value.reshape(1) for value in self.read(edge["each"], replica)]
        return self.read(edge, replica).reshape(-1)

    def _check_races(self, vertices: list[Case]) -> None:
        """No element that a vertex writes is in another edge of any vertex."""
        touched: dict[tuple[str, int], int] = {}
        written: set[tuple[str, int]] = set()
        for vertex in vertices:
            for name, edge in vertex["edges"].items():
                for view in edge if isinstance(edge, list) else [edge.get("each", edge)]:
                    type = self.layout.type_of(view)
                    for at in set(self.index(view).reshape(-1).tolist()):
                        touched[type, at] = touched.get((type, at), 0) + 1
                        if name == WRITTEN[vertex["codelet"]]:
                            written.add((type, at))
        if any(touched[element] > 1 for element in written):
            raise IllegalCase("a race")

    def do_operate(self, node: Case) -> None:
        rule = ELEMENT_RULES[node["op"]]
        self._check_operation(node, rule)
        for replica in range(self.n_replicas):
            values = [self.read(view, replica) for view in node["ins"]]
            self.write(node["to"], rule.numpy(*values), replica)

    def _check_operation(self, node: Case, rule: object) -> None:
        types = [self.layout.type_of(view) for view in node["ins"]]
        n_alike = rule.n_operands - rule.has_condition
        result = "BOOL" if rule.gives_bool else types[0]
        if len(types) != rule.n_operands or len(set(types[:n_alike])) != 1:
            raise IllegalCase("operands of one type")
        if types[0] not in rule.types or self.layout.type_of(node["to"]) != result:
            raise IllegalCase("a type of the operation")
        if rule.has_condition and types[-1] != "BOOL":
            raise IllegalCase("a condition")
        for view in node["ins"]:
            self._check_apart(view, node["to"], may_be_equal=node["form"] == "in place")

    def _check_apart(self, source: View, target: View, *, may_be_equal: bool = False) -> None:
        if self.layout.type_of(source) != self.layout.type_of(target):
            return
        read, written = self.index(source), self.index(target)
        if may_be_equal and np.array_equal(read, written):
            return
        if np.intersect1d(read, written).size:
            raise IllegalCase("operands and result apart")

    def do_reduce(self, node: Case) -> None:
        types, reduce = REDUCTIONS[node["op"]]
        self._same_type(node["from"], node["to"])
        self._check_apart(node["from"], node["to"])
        index = self.index(node["from"])
        if self.layout.type_of(node["from"]) not in types or index.ndim != 2 or not index.size:
            raise IllegalCase("a matrix of a type of the reduction")
        for replica in range(self.n_replicas):
            values = reduce(self.read(node["from"], replica), node["axis"])
            self.write(node["to"], values, replica)

    def do_cast(self, node: Case) -> None:
        self._check_apart(node["from"], node["to"])
        dtype = DTYPES[self.layout.type_of(node["to"])]
        for replica in range(self.n_replicas):
            self.write(node["to"], self.read(node["from"], replica).astype(dtype), replica)


def chunk(n: int, count: int, dtype: np.dtype) -> np.ndarray:
    """What a stream delivers the next time: numbers that count upwards."""
    return ((np.arange(n) + count * 3) % (2 if dtype.kind == "b" else 7)).astype(dtype)


def _state(vertex: Case) -> dict:
    state = dict(vertex["state"])
    return {**state, "steps": list(state["steps"])} if "steps" in state else state
