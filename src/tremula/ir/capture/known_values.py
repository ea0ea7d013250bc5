"""Values that are known while a model is recorded: constants, and what is computed from them."""

from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from tremula.ir.passes.clean import is_random
from tremula.ir.passes.functionalise import written_argument
from tremula.ir.passes.views import is_view

_FAKE = torch._subclasses.FakeTensor


def known_value(recorder: Any, tensor: Tensor) -> Tensor | None:  # noqa: ANN401 - imports this
    """The value of a tensor of the recording, or None if only running the model would tell."""
    if not isinstance(tensor, _FAKE):
        return tensor if id(tensor) in recorder.known_constants else None
    if not recorder.knows(tensor):
        return None
    with _disable_current_modes():
        return _evaluated(recorder.node_of(tensor), recorder.constants, {})


def _evaluated(node: fx.Node, constants: dict[str, Tensor], found: dict[fx.Node, Any]) -> Any:  # noqa: ANN401 - what an operation gives
    if node in found:
        return found[node]
    value = None
    if node.op == "get_attr":
        value = constants[str(node.target)]
    elif node.op == "call_function" and not is_random(node):
        operands = [_evaluated(n, constants, found) for n in node.all_input_nodes]
        if not any(o is None for o in operands):
            values = dict(zip(node.all_input_nodes, operands, strict=True))
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            args, kwargs = tree_map_only(Tensor, Tensor.clone, (args, kwargs))  # it may write them
            value = node.target(*args, **kwargs)  # pyright: ignore[reportCallIssue]
    if value is not None and _is_written_through_a_view(node):
        value = None
    found[node] = value
    return value


def _is_written_through_a_view(node: fx.Node) -> bool:
    """Whether its elements may be others by now; a write of its own made a new node."""
    views = [user for user in node.users if is_view(user.target)]
    return any(
        _is_written_through_a_view(view)
        or any(written_argument(user.target) is not None for user in view.users)
        for view in views
    )
