"""A small, obviously correct interpreter of programs, for tests only: no columns, no compiler.

Memory is one NumPy byte array per variable. A tensor is read and written element by element, at the
addresses its view has. A vertex is a plain Python function on arrays, run in the order of addition.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tremula.poplar import programs as p
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.compute_set import ComputeSet

Edge = Tensor | list[Tensor]


@dataclass
class PlainVertex:
    """A vertex as a function: `compute(fields, state)` changes arrays, and may return a bool."""

    compute: Callable[[dict, dict], bool | None]
    edges: dict[str, Edge]
    written: set[str]
    state: dict[str, object] = field(default_factory=dict)


class ReferenceInterpreter:
    """Runs program trees of one graph on its own memory."""

    def __init__(self, graph: Graph, vertices: dict[ComputeSet, list[PlainVertex]]):
        self.variables = graph.state.variables
        self.vertices = vertices
        sizes = zip(self.variables.base_bytes, self.variables.end_bytes, strict=True)
        self.memory = [np.zeros(end - begin, np.uint8) for begin, end in sizes]
        for tensor, values in graph.state.initial_parts:
            self.write(tensor, values)

    # -- memory ------------------------------------------------------------------------------------

    def _places(self, tensor: Tensor) -> list[tuple[np.ndarray, int]]:
        """(array of the variable in the tensor's type, index in it) of each element."""
        places = []
        for address in tensor.addresses().ravel().tolist():
            byte = address * tensor.type.n_bytes
            variable = self.variables.id_at(byte)
            typed = self.memory[variable].view(tensor.type.dtype)
            at = (byte - self.variables.base_bytes[variable]) // tensor.type.n_bytes
            places.append((typed, at))
        return places

    def read(self, tensor: Tensor) -> np.ndarray:
        values = [typed[at] for typed, at in self._places(tensor)]
        return np.array(values, tensor.type.dtype).reshape(tensor.shape)

    def write(self, tensor: Tensor, values: np.ndarray) -> None:
        flat = np.asarray(values).astype(tensor.type.dtype).ravel()
        for (typed, at), value in zip(self._places(tensor), flat, strict=True):
            typed[at] = value

    def is_true(self, scalar: Tensor) -> bool:
        return bool(self.read(scalar).ravel()[0])

    # -- programs ----------------------------------------------------------------------------------

    def run(self, program: p.Program) -> None:
        """Run one program; the name of its class picks the method."""
        getattr(self, f"run_{type(program).__name__}")(program)

    def run_Sequence(self, program: p.Sequence) -> None:
        for step in program.steps:
            self.run(step)

    def run_Block(self, program: p.Block) -> None:
        self.run(program.body)

    def run_Execute(self, program: p.Execute) -> None:
        before = [
            ({name: self._read_edge(edge) for name, edge in vertex.edges.items()}, vertex)
            for vertex in self.vertices[program.compute_set]
        ]
        results = []
        for fields, vertex in before:
            result = vertex.compute(fields, vertex.state)
            results.append(True if result is None else bool(result))
            for name in vertex.written:
                self._write_edge(vertex.edges[name], fields[name])
        if program.result is not None:
            self.write(program.result, np.array(all(results)))

    def _read_edge(self, edge: Edge) -> np.ndarray | list[np.ndarray]:
        if isinstance(edge, list):
            return [self.read(part).ravel() for part in edge]
        return self.read(edge).ravel()

    def _write_edge(self, edge: Edge, values: np.ndarray | list[np.ndarray]) -> None:
        parts = edge if isinstance(edge, list) else [edge]
        data = values if isinstance(edge, list) else [values]
        for part, value in zip(parts, data, strict=True):
            self.write(part, value)

    def run_Copy(self, program: p.Copy) -> None:
        assert isinstance(program.source_of_data, Tensor)
        assert isinstance(program.destination, Tensor)
        self.write(program.destination, self.read(program.source_of_data))

    def run_Repeat(self, program: p.Repeat) -> None:
        for _ in range(program.count):
            self.run(program.body)

    def run_RepeatWhileTrue(self, program: p.RepeatWhileTrue) -> None:
        self.run(program.condition)
        while self.is_true(program.predicate) != program.stops_on:
            self.run(program.body)
            self.run(program.condition)

    run_RepeatWhileFalse = run_RepeatWhileTrue

    def run_If(self, program: p.If) -> None:
        self.run(program.true_body if self.is_true(program.predicate) else program.false_body)

    def run_Switch(self, program: p.Switch) -> None:
        value = int(self.read(program.control).ravel()[0])
        self.run(dict(program.cases).get(value, program.default))

    def run_Call(self, program: p.Call) -> None:
        self.run(program.function.program)

    def run_Sync(self, program: p.Sync) -> None:
        """Takes time, changes nothing."""

    def run_WriteUndef(self, program: p.WriteUndef) -> None:
        """Says that data no longer matters; here it stays."""
