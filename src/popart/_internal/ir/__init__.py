"""popart._internal.ir: operations of a PopXL program by class, as a view."""

from tremula.frontends.popxl.core.internal import GraphView as Graph
from tremula.frontends.popxl.core.internal import IrView as Ir
from tremula.frontends.popxl.core.internal import OpView as Op
from tremula.frontends.popxl.core.internal import TensorType
from tremula.frontends.popxl.core.internal import TensorView as Tensor
from tremula.frontends.popxl.ops import public as _public  # fills the table

from . import op

__all__ = ["Graph", "Ir", "Op", "Tensor", "TensorType", "op"]
