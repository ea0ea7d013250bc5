"""What cases of PopXL's exceptions act on: an Ir with tensors and graphs, and what a case is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import popxl
from popxl import ops


class World:
    """An Ir of four replicas with its main graph open, some tensors, and a graph to call."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.ir = ir = popxl.Ir(replication=4)
        self.main = ir.main_graph
        with self.main:
            self.x = popxl.variable(np.ones((2, 3), np.float32), name="x")
            self.v = popxl.variable(np.ones(2, np.float32), name="v")
            self.s = popxl.variable(1.0, name="s")
            self.i = popxl.variable(np.ones(2, np.int32), name="i")
            self.h = popxl.variable(np.ones(2, np.float16), name="h")
            self.flag = popxl.variable(True, name="flag")
            self.image = popxl.variable(np.ones((1, 2, 4, 4), np.float32), name="image")
            self.seed = popxl.variable(np.ones(2, np.uint32), name="seed")
            self.buffer = popxl.remote_buffer((2,), popxl.float32, 2)
            self.code = popxl.variable([1.0], popxl.float8_143, log2_scale=0)
            self.graph = ir.create_graph(self.plus, self.v, self.s)
            self.call = ops.call_with_info(self.graph, self.v, self.s)

    @staticmethod
    def plus(t: popxl.Tensor, s: popxl.Tensor) -> popxl.Tensor:
        return t + s

    def made(self, build: Callable, *args: Any) -> popxl.Graph:
        return self.ir.create_graph(build, *args)

    def closed(self) -> popxl.Session:
        """A session, after which nothing can change."""
        return popxl.Session(self.ir, "cpu")

    def mapped(self, dtype: Any = np.float32, shape: tuple[int, ...] = (2,)) -> np.memmap:
        path = self.folder / "weights.bin"
        np.zeros(shape, dtype).tofile(path)
        return np.memmap(path, dtype, "r", shape=shape)

    def chips(self) -> popxl.Tensor:
        """A sum of tensors of two chips."""
        a = self.v + 1
        with popxl.ipu(1):
            b = self.v + 1
        return ops.add(a, b)

    def branch(self) -> Any:
        """What binds a branch whose graphs are both `plus`."""
        inputs = [self.v, self.s]
        return ops.conditional_with_info(self.flag, self.graph, self.graph, inputs, inputs)

    def with_option(self, name: str, value: object, do: Callable) -> Any:
        setattr(self.ir.session_options, name, value)
        return do()

    def chained(self) -> None:
        with popxl.transforms.io_tile_exchange():
            ops.remote_store(self.buffer, 0, ops.remote_load(self.buffer, 0))

    def single(self) -> popxl.Ir:
        """Another program, of one replica, that loads and stores a stream."""
        ir = popxl.Ir()
        with ir.main_graph:
            self.own = popxl.variable(np.zeros(2, np.float32), name="own")
            self.stream = popxl.h2d_stream((2,), popxl.float32, "in")
            self.out = popxl.d2h_stream((2,), popxl.float32, "out")
            ops.host_store(self.out, ops.host_load(self.stream) + self.own)
        return ir

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Without an open graph."""
        self.main.__exit__(None, None, None)
        try:
            yield
        finally:
            self.main.__enter__()


class Case(NamedTuple):
    """What is done with a world, inside its main graph, and the exception that follows."""

    name: str
    error: type[BaseException]
    text: str
    do: Callable[[World], object]
