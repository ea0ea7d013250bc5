"""popxl.transforms: changes of whole graphs."""

from tremula.frontends.popxl.transforms.autodiff import autodiff
from tremula.frontends.popxl.transforms.decompose_sum import decompose_sum
from tremula.frontends.popxl.transforms.grad_info import (
    ExpectedConnection,
    ExpectedConnectionType,
    GradGraphInfo,
)
from tremula.frontends.popxl.transforms.merge_exchange import io_tile_exchange, merge_exchange
