"""Tiles: what a lowering sees of the program under construction."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import fx

from tremula.base.types import Type
from tremula.ir.lowering.options import LoweringOptions
from tremula.ir.lowering.start_tiles import spread_if_small, start_tile
from tremula.ir.lowering.types import narrow, tile_type
from tremula.ir.nodes import operand
from tremula.ir.origin import NO_CHOICES, ORIGIN, Choices, Origin
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops, poputil

# The key in `Tiles.shared` of the host code that programs call, by handle.
HOST_FUNCTIONS = "host functions"
# The key of functions that the program calls, by body and chip.
FUNCTIONS = "functions"


@dataclass
class Tiles:
    """Where a lowering builds: the graph of one chip, a sequence, the node it lowers."""

    graph: Graph
    sequence: Sequence
    node: fx.Node
    options: LoweringOptions
    shared: dict = field(default_factory=dict)  # what lowerings of one program share, e.g. plans
    chip: int = 0
    # What the result will be stored in; element-wise operations write there directly.
    destination: Tensor | None = None
    # Two UNSIGNED_INT that random operations draw from instead of the workers' states.
    seed: Tensor | None = None

    @property
    def name(self) -> str:
        """The debug name of what is built: module path and operation."""
        path = self.origin.path if self.origin is not None else ""
        return f"{path}/{self.node.name}" if path else self.node.name

    @property
    def origin(self) -> Origin | None:
        return self.node.meta.get(ORIGIN)

    @property
    def out_shape(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.node.meta["val"].shape)

    @property
    def out_type(self) -> Type:
        return tile_type(self.node.meta["val"].dtype)

    def result_shape(self, index: int) -> tuple[int, ...]:
        """Shape of one result of a node with several."""
        return tuple(int(n) for n in self.node.meta["val"][index].shape)

    def result_type(self, index: int) -> Type:
        return tile_type(self.node.meta["val"][index].dtype)

    def is_read(self, index: int) -> bool:
        """Whether anything uses one result of a node with several."""
        return any(user.args[1] == index and user.users for user in self.node.users)

    def shape_of(self, argument: int) -> tuple[int, ...]:
        """Static shape of one operand of the node."""
        return tuple(int(n) for n in operand(self.node, argument).meta["val"].shape)

    def type_of(self, argument: int) -> Type:
        return tile_type(operand(self.node, argument).meta["val"].dtype)

    @property
    def choices(self) -> Choices:
        """What the program says of how this operation is planned."""
        return NO_CHOICES if self.origin is None else self.origin.choices

    def product_options(self) -> dict[str, Any]:
        """The user's choices for this product: type of partial sums, memory it may take."""
        options: dict[str, Any] = {}
        partials = self.choices.partials_type or self.options.partials_type
        if partials is not None:
            options["partials_type"] = partials
        memory = self.choices.available_memory
        if memory is None:
            memory = self.options.available_memory.get(self.chip)
        if memory is not None:
            options["available_memory_proportion"] = memory
        return options

    def constant(self, values: object, type: Type) -> Tensor:
        """A constant, which begins on any tile; equal scalars are made once."""
        array = np.asarray(values, type.dtype)
        key = ("constant", type.name, array.shape, array.tobytes()) if array.size <= 16 else None
        if key is not None and key in self.shared:
            return self.shared[key]
        tensor = self.graph.add_constant(type, array.shape, array, "constant")
        begin = start_tile(self.graph, list(array.shape), array.tobytes())
        poputil.map_tensor_linearly_with_offset(self.graph, tensor, begin)
        if key is not None:
            self.shared[key] = tensor
        return tensor

    def constant_of(self, tensor: torch.Tensor) -> Tensor:
        return self.constant(narrow(tensor), tile_type(tensor.dtype))

    def cast(self, tensor: Tensor, type: Type) -> Tensor:
        """The tensor in another type; itself if it has that type."""
        if tensor.type == type:
            return tensor
        return popops.cast(self.graph, tensor, type, self.sequence, self.name)

    def new(self, shape: tuple[int, ...], type: Type, name: str = "") -> Tensor:
        """A variable spread evenly over the tiles."""
        return spread_if_small(self.graph, type, list(shape), name or self.name)

    def writeable_copy(self, tensor: Tensor) -> Tensor:
        """The values in a new variable: laid out alike, or spread if they are repeated."""
        if poputil.repeats_elements(tensor) or tensor.contains_constant:
            target = self.new(tensor.shape, tensor.type)
            self.copy(tensor, target)
            return target
        return poputil.duplicate(self.graph, tensor, self.sequence, self.name)

    def copy(self, source: Tensor, target: Tensor) -> None:
        self.sequence.add(Copy(source, target))
