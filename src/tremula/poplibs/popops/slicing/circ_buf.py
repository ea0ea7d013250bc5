"""CircBuf: a ring of tensors on the device, with the place of the newest kept there too."""

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import UNSIGNED_INT, Type, as_type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.elementwise.expr import _1
from tremula.poplibs.popops.elementwise.map import map as map_expr
from tremula.poplibs.popops.elementwise.map import map_in_place
from tremula.poplibs.popops.slicing.dynamic_slice import dynamic_slice, dynamic_update
from tremula.poplibs.popops.slicing.layout import create_sliceable_tensor
from tremula.poplibs.registry import PoplibsError


class CircBuf:
    """The last `size` tensors added, each of `shape`; at first its contents are undefined."""

    def __init__(self, graph: Graph, type: Type | str, size: int, shape: list[int], name: str = ""):
        if size < 1:
            raise PoplibsError(
                f"a ring of {size} tensors has no room.",
                source=user_source(),
                hint="use a size of 1 or more",
            )
        self.graph, self.size, self.name = graph, size, name or "circBuf"
        self.buffer = create_sliceable_tensor(graph, as_type(type), [size, *shape], name=self.name)
        self.index = graph.add_variable(UNSIGNED_INT, [1], f"{self.name}/index", mapping=0)
        graph.set_initial_value(self.index, np.uint32(size - 1))

    def add(self, tensor: Tensor, sequence: Sequence) -> None:
        """Add a tensor after the newest; the oldest is overwritten."""
        map_in_place(
            self.graph, (_1 + 1) % self.size, [self.index], sequence, f"{self.name}/advance"
        )
        part = tensor.expand([0])
        dynamic_update(self.graph, self.buffer, part, self.index, sequence)

    def prev(self, distance: int, sequence: Sequence) -> Tensor:
        """The tensor that was added `distance` before the newest (0: the newest), as a new one."""
        if not 0 <= distance < self.size:
            raise PoplibsError(
                f"a ring of {self.size} tensors has none at distance {distance}.",
                source=user_source(),
                hint=f"use 0 to {self.size - 1}",
            )
        back = self.size - distance
        place = map_expr(
            self.graph, (_1 + back) % self.size, [self.index], sequence, f"{self.name}/place"
        )
        result = dynamic_slice(self.graph, self.buffer, place, sequence)
        return result[0]
