"""Memory of a tile: the latency of a load, and how fast all tiles read."""

from typing import Any

import numpy as np

from tremula.base.types import FLOAT, UNSIGNED_INT, float32, uint32
from tremula.codelets import Input, MultiVertex, Output, Vector, Vertex
from tremula.codelets.cost.slots import LAUNCH_CYCLES, VERTEX_OVERHEAD_SLOTS
from tremula.codelets.spec import CostView
from tremula.hardware import Chip, chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute, Sequence
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import time_program
from tremula.validate.workloads.fit_programs import Chase
from tremula.validate.workloads.layout import map_rows
from tremula.validate.workloads.table import ModelledValue, workload

FAMILY = "memory and exchange"
N_LINKS = 4096  # of the chain that is chased
N_BLOCK_BYTES = 32 * 1024  # read by each tile


class ReadBlock(MultiVertex):
    """Each worker adds up its share of a block, with loads of a given width."""

    block: Input[Vector[float32]]
    sums: Output[Vector[float32]]
    n_bytes_per_load: uint32  # pyright: ignore[reportInvalidTypeForm] - a machine type

    def compute(self: Any, worker: int) -> None:
        total = float32(0)
        n = len(self.block)
        begin = n * worker // self.n_workers
        end = n * (worker + 1) // self.n_workers
        for i in range(begin, end):
            total += self.block[i]
        self.sums[worker] = total

    @staticmethod
    def cycles(v: CostView, chip: Chip) -> np.ndarray:
        # One load and one addition each slot.
        n_loads = -(-v.sizes["block"] * FLOAT.n_bytes // v.state["n_bytes_per_load"])
        per_worker = VERTEX_OVERHEAD_SLOTS + -(-n_loads // chip.n_workers)
        return LAUNCH_CYCLES + chip.n_workers * per_worker

    provenance = "published"


class Triad(Vertex):
    """a = b + q c by one worker: two loads, a store and an axpy of two floats each slot."""

    b: Input[Vector[float32]]
    c: Input[Vector[float32]]
    a: Output[Vector[float32]]

    def compute(self: Any) -> None:
        for i in range(len(self.a)):
            self.a[i] = self.b[i] + float32(3) * self.c[i]

    @staticmethod
    def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
        # In front of and behind the loop: as many bundles as its pipeline is deep, and pointers.
        return VERTEX_OVERHEAD_SLOTS + TRIAD_EDGES + v.sizes["a"] // 2

    provenance = "published"


TRIAD_EDGES = (
    5  # simehaa/IPU, STREAMTriad/codelets.cpp: 3 bundles, nop and rpt, less 2 of the turns
)


@workload("STREAM triad", FAMILY)
def triad(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Three vectors in each of the workers of all tiles: 12 bytes and 2 operations an element."""
    here = chip(chip_name)
    n_tiles = row.number("tiles", here.n_tiles)
    n_workers, n_floats = row.number("workers", here.n_workers), row.number("floats")
    n = n_tiles * n_workers

    def build(graph: Graph, sequence: Sequence) -> None:
        tiles = np.repeat(np.arange(n_tiles), n_workers)
        fields = {name: graph.add_variable(FLOAT, [n, n_floats], name) for name in "abc"}
        for tensor in fields.values():
            map_rows(graph, tensor, tiles)
        compute_set = graph.add_compute_set("triad")
        graph.add_vertices(compute_set, Triad, fields, tiles=tiles)
        sequence.add(Execute(compute_set))

    timing = time_program(chip_name, row.n_ipus, build)
    n_elems = float(n * n_floats)
    return ModelledValue.of(timing, n_flops=2 * n_elems, n_bytes=3 * FLOAT.n_bytes * n_elems)


@workload("pointer chase", FAMILY)
def pointer_chase(row: MeasuredRow, chip_name: str) -> ModelledValue:
    def build(graph: Graph, sequence: Sequence) -> None:
        chain = graph.add_variable(UNSIGNED_INT, [N_LINKS], "chain", mapping=0)
        last = graph.add_variable(UNSIGNED_INT, [], "last", mapping=0)
        chase = graph.add_compute_set("chase")
        graph.add_vertex(chase, Chase, {"chain": chain, "last": last}, tile=0)
        sequence.add(Execute(chase))

    timing = time_program(chip_name, row.n_ipus, build)
    return ModelledValue(timing.compute / N_LINKS, timing.clock_hz)


@workload("SRAM read bandwidth", FAMILY)
def read_bandwidth(row: MeasuredRow, chip_name: str) -> ModelledValue:
    n_tiles = row.number("tiles", chip(chip_name).n_tiles)
    n_bytes = row.number("bytes", N_BLOCK_BYTES)
    n_workers = chip(chip_name).n_workers

    def build(graph: Graph, sequence: Sequence) -> None:
        blocks = graph.add_variable(FLOAT, [n_tiles, n_bytes // FLOAT.n_bytes], "blocks")
        sums = graph.add_variable(FLOAT, [n_tiles, n_workers], "sums")
        map_rows(graph, blocks)
        map_rows(graph, sums)
        read = graph.add_compute_set("read")
        width = np.full(n_tiles, row.number("load_bits") // 8, np.uint32)
        fields = {"block": blocks, "sums": sums, "n_bytes_per_load": width}
        graph.add_vertices(read, ReadBlock, fields, tiles=np.arange(n_tiles))
        sequence.add(Execute(read))

    timing = time_program(chip_name, row.n_ipus, build)
    # Measured inside the vertices: without the sync of a step.
    return ModelledValue(timing.compute, timing.clock_hz, n_bytes=float(n_tiles * n_bytes))
