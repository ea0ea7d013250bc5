"""What a graph owns: variables, tile maps, compute sets, codelets and host handles."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tremula.codelets.spec import Codelet
from tremula.hardware import Chip
from tremula.poplar.streams import HostHandles
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapLog
from tremula.poplar.tensors.variables import VariableTable
from tremula.poplar.vertices.compute_set import ComputeSet

# (v, chip) -> cycles, or (cycles, flops), of all vertices of a codelet at once.
PerfEstimator = Callable[[Any, Chip], object]


class GraphState:
    """What a graph and all its virtual graphs share."""

    def __init__(self) -> None:
        self.variables = VariableTable()
        self.tile_map = TileMapLog()
        self.initial_parts: list[tuple[Tensor, np.ndarray]] = []
        self.compute_sets: list[ComputeSet] = []
        self.codelets: dict[str, Codelet] = {}
        self.handles = HostHandles()
        self.perf_estimators: dict[str, PerfEstimator] = {}
        self.replica_index: int | None = None  # variable id of the replication index constant
