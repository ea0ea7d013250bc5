"""What calls of torch functions mean while a model is recorded: losses, factories, mixed types."""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tremula.ir.losses import LOSS_FUNCTIONS
from tremula.ir.recording import Recording

# Products take the type of the activation, their first operand; weights are cast to it.
_PRODUCTS: frozenset[Callable] = frozenset(
    {
        F.linear,
        F.bilinear,
        torch.matmul,
        torch.mm,
        torch.bmm,
        Tensor.matmul,
        Tensor.mm,
        Tensor.bmm,
        Tensor.__matmul__,
        F.conv1d,
        F.conv2d,
        F.conv3d,
        F.conv_transpose1d,
        F.conv_transpose2d,
        F.conv_transpose3d,
    }
)


class FunctionRules(TorchFunctionMode):
    """Sees each torch function before it runs; marks losses and casts mixed operands."""

    def __init__(self, state: Recording):
        super().__init__()
        self.state = state
        self._inside_loss = False

    def __torch_function__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN201, ARG002
        kwargs = kwargs or {}
        if func in _PRODUCTS:
            args, kwargs = _in_the_type_of_the_activation(args, kwargs)
        result = func(*args, **kwargs)
        if func in LOSS_FUNCTIONS and isinstance(result, Tensor):
            self.state.mark_loss(result, str(kwargs.get("reduction", "mean")))
        return result


def _in_the_type_of_the_activation(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    halves = (torch.float16, torch.float32)
    first = args[0] if args else kwargs.get("input")
    if not isinstance(first, Tensor) or first.dtype not in halves:
        return args, kwargs

    def cast(value: object) -> object:
        wrong = isinstance(value, Tensor) and value.dtype in halves and value.dtype != first.dtype
        return value.to(first.dtype) if wrong else value

    return tuple(cast(a) for a in args), {name: cast(value) for name, value in kwargs.items()}
