"""popart._internal.ir: operations of a PopXL program by class, as a view."""

from tremula.frontends.popart.enums import CommGroupType, DataType, TileSet
from tremula.frontends.popart.groups import CommGroup
from tremula.frontends.popxl.core.internal import GraphView as Graph
from tremula.frontends.popxl.core.internal import IrView as Ir
from tremula.frontends.popxl.core.internal import OpView as Op
from tremula.frontends.popxl.core.internal import TensorType
from tremula.frontends.popxl.core.internal import TensorView as Tensor
from tremula.frontends.popxl.locations import ExecutionContext

from . import op, patterns

__all__ = [
    "CommGroup", "CommGroupType", "DataType", "ExecutionContext", "Graph", "Ir", "Op", "Tensor",
    "TensorType", "TileSet", "op", "patterns",
]  # fmt: skip
