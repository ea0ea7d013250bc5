"""The executable cache returns what compiling would, and never anything older."""

from pathlib import Path

import pytest

import tremula as tr
from tremula import FLOAT, InOut, Vertex, float32
from tremula.compiler.compile import compile_graph


class Step(Vertex):
    x: InOut[float32]

    def compute(self):
        self.x = self.x + float32(1)


def compiled(cache: Path, **changes: object) -> tr.Executable:
    """A small program; `changes` alter one thing that decides the executable."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=2).create_device())
    x = graph.add_variable(FLOAT, [], "x", mapping=int(changes.get("tile", 0)))
    graph.set_initial_value(x, float(changes.get("initial", 0.0)))
    stream = graph.add_host_to_device_fifo(
        "in", FLOAT, 1, buffering_depth=int(changes.get("depth", 1))
    )
    step = graph.add_compute_set("step")
    graph.add_vertex(step, Step, {"x": x}, tile=0)
    cycles = changes.get("cycles", 10)
    graph.register_perf_estimator("Step", lambda v, chip: cycles)
    program = tr.Sequence(
        [tr.Copy(stream, x), tr.Repeat(int(changes.get("n", 2)), tr.Execute(step))]
    )
    return compile_graph(graph, program, {"tremula.cache": str(cache)})


def test_second_compile_reads_the_file(tmp_path: Path) -> None:
    """Compiling a program twice makes one file, and the second result equals the first."""
    first, second = compiled(tmp_path), compiled(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    assert (first.code == second.code).all()
    assert first.analysis.costs.compute.tolist() == second.analysis.costs.compute.tolist()


@pytest.mark.parametrize(
    "change", [{"cycles": 1000}, {"depth": 2}, {"initial": 1.0}, {"tile": 1}, {"n": 3}]
)
def test_any_change_compiles_again(tmp_path: Path, change: dict[str, object]) -> None:
    """Costs, streams, initial values, tile maps and programs are all part of the key."""
    compiled(tmp_path)
    changed = compiled(tmp_path, **change)
    assert len(list(tmp_path.iterdir())) == 2
    if "cycles" in change:
        assert changed.analysis.costs.compute.max() == 6000


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    """A truncated cache file warns, is compiled and written again."""
    compiled(tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.warns(UserWarning, match="compiling again"):
        compiled(tmp_path)
    assert file.read_bytes() == whole
