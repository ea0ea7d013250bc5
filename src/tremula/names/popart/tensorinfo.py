"""Types and shapes of tensors of PopART, by the path of its Python file."""

from tremula.frontends.popart.tensor_info import TensorInfo

__all__ = ["TensorInfo"]
