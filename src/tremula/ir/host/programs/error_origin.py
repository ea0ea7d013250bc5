"""Which operation of a model raised while its step ran on this computer."""

from collections.abc import Callable
from types import MethodType

from torch import fx

from tremula.ir.nodes import schema_name
from tremula.ir.origin import ORIGIN


def note_operation(error: Exception, micro: Callable) -> None:
    """Add a note to an error of PyTorch: the operation, its module and the line of the model."""
    node = _failing_node(error, micro)
    origin = node.meta.get(ORIGIN) if node is not None else None
    if node is None or origin is None:
        return
    module = f" of module {origin.module}" if origin.module else ""
    error.add_note(f"  in {schema_name(node)}{module}, {origin.phase}, at {origin.source}")


def _failing_node(error: Exception, micro: Callable) -> fx.Node | None:
    """The node whose line of generated code raised, if a graph runs line by line."""
    module = micro.__self__ if isinstance(micro, MethodType) else None
    if not isinstance(micro, MethodType) or not isinstance(module, fx.GraphModule):
        return None
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not micro.__func__.__code__:
        trace = trace.tb_next
    if trace is None:
        return None
    line = module.code.split("\n")[trace.tb_lineno - 1]
    name = line.partition("=")[0].strip()
    return next((node for node in module.graph.nodes if node.name == name), None)
