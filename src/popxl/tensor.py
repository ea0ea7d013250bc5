"""popxl.tensor: tensors and what makes them."""

from tremula.frontends.popxl.core.constructors import (
    constant,
    graph_input,
    graph_output,
    remote_replica_sharded_variable,
    remote_variable,
    replica_sharded_variable,
    variable,
)
from tremula.frontends.popxl.core.tensor import (
    Constant,
    Tensor,
    TensorByRef,
    TensorLike,
    TensorSpec,
    Variable,
)
