"""Outlining: the same numbers from fewer steps, for programs of any repeated parts."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tremula as tr
from tremula.poplar.programs import Call
from tremula.poplibs import poplin, popops
from tremula.poplibs.outlining import outlined

N_TILES, N = 4, 24


class _Program:
    """Layers over a state: `operations` say what each does; weights and results are held."""

    def __init__(self, operations: list[str], n_layers: int, n_loops: int = 1):
        self.graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=N_TILES).create_device())
        self.sequence, self.values = tr.Sequence(), {}
        x = self._variable("x")
        saved = []
        for layer in range(n_layers):
            weight = self._variable(f"w{layer}")
            for operation in operations:
                x = self._applied(operation, x, weight, saved)
        self._read("y", x)
        for number, value in enumerate(saved):
            self._read(f"saved{number}", value)
        self.program = tr.Repeat(n_loops, self.sequence) if n_loops > 1 else self.sequence

    def _variable(self, name):
        made = self.graph.add_variable(tr.FLOAT, [N], name, mapping="linear")
        self.graph.create_host_write(name, made)
        self._read(name + " after", made)
        self.values[name] = np.linspace(-1, 1, N, dtype=np.float32) + len(self.values)
        return made

    def _read(self, name, tensor):
        self.graph.create_host_read(name, tensor)

    def _applied(self, operation, x, weight, saved):
        graph, sequence = self.graph, self.sequence
        if operation == "mul":
            return popops.mul(graph, x, weight, sequence, "mul")
        if operation == "keep":
            saved.append(popops.tanh(graph, x, sequence, "keep"))
            return x
        if operation == "train":  # writes the weight
            popops.add_in_place(graph, weight, x, sequence, "train")
            return x
        return popops.add(graph, popops.tanh(graph, x, sequence, "tanh"), weight, sequence, "add")

    def results(self, program):
        engine = tr.Engine(self.graph, program)
        engine.load(tr.IPUModel("bow", tiles_per_ipu=N_TILES).create_device())
        for name, values in self.values.items():
            engine.write_tensor(name, values)
        engine.run()
        return {name: engine.read_tensor(name) for name in self.graph.state.handles.reads}


OPERATIONS = st.lists(st.sampled_from(["mul", "keep", "train", "add"]), min_size=1, max_size=4)


@settings(max_examples=12)
@given(OPERATIONS, st.integers(2, 4), st.integers(1, 2))
def test_outlined_programs_compute_the_same(operations, n_layers, n_loops):
    """Whatever layers read, keep or write, calls of a function leave what steps in place leave."""
    made = _Program(operations, n_layers, n_loops)
    plain = made.results(made.program)
    program, _ = outlined(made.graph, made.program, threshold=-100.0, most_copied=100.0)
    again = made.results(program)
    assert all(np.array_equal(plain[name], again[name]) for name in plain)


def test_layers_become_calls():
    """Equal layers are one function; its code counts once."""
    made = _Program(["mul", "add", "mul", "add"], 5)
    program, result = outlined(made.graph, made.program, threshold=-100.0, most_copied=100.0)
    assert result.n_functions >= 1
    assert result.n_calls >= 4
    functions = {id(s.function) for s in program.steps if isinstance(s, Call)}
    assert len(functions) == result.n_functions


def test_what_saves_too_little_stays_as_it_is():
    """A threshold that nothing reaches leaves every step in its place."""
    made = _Program(["mul", "add"], 3)
    program, result = outlined(made.graph, made.program, threshold=1000.0)
    assert (result.n_functions, result.n_calls) == (0, 0)
    assert [type(s) for s in program.steps] == [type(s) for s in made.sequence.steps]


def _chained_convolutions(n_layers):
    """Graph, program and operands of convolutions that follow each other, on more tiles."""
    graph, sequence = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=24).create_device()), tr.Sequence()
    params = poplin.ConvParams(
        type=tr.FLOAT, n_batch=1, field_shape=(12, 12), kernel_shape=(3, 3), n_in_chans=16,
        n_out_chans=16, padding_lower=(1, 1), padding_upper=(1, 1),
    )  # fmt: skip
    options = {"available_memory_proportion": 0.3}
    x = poplin.create_input(graph, params, "x", **options)
    operands = [x]
    for layer in range(n_layers):
        operands.append(poplin.create_weights(graph, params, f"w{layer}", **options))
        x = poplin.convolution(graph, x, operands[-1], params, sequence, f"c{layer}", **options)
    for number, tensor in enumerate(operands):
        graph.create_host_write(f"in{number}", tensor)
    graph.create_host_read("out", x)
    return graph, sequence, [tensor.shape for tensor in operands]


def test_convolutions_share_exchange_code():
    """Equal convolutions are one function: the code of their exchanges counts once, not by layer.

    Their arguments are as large as what they exchange, but live around a call alone.
    """
    graph, sequence, shapes = _chained_convolutions(6)
    program, result = outlined(graph, sequence)
    assert result.n_calls >= 4
    values = [np.random.default_rng(n).standard_normal(s) for n, s in enumerate(shapes)]
    memory, results = [], []
    for each in (sequence, program):
        engine = tr.Engine(graph, each)
        engine.load(tr.IPUModel("bow", tiles_per_ipu=24).create_device())
        memory.append(engine.executable.analysis.memory)
        for number, value in enumerate(values):
            engine.write_tensor(f"in{number}", value.astype(np.float32))
        engine.run()
        results.append(engine.read_tensor("out"))
    plain, shared = (m.category("Internal Exchange Code").sum() for m in memory)
    assert shared < plain / 2
    assert memory[1].always_live.sum() < memory[0].always_live.sum()
    assert np.array_equal(*results)
