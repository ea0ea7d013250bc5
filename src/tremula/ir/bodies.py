"""Bodies of loops and branches: separate steps, which operations name by a text key."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor, fx

from tremula.ir.step import CapturedStep

HostForm = Callable[..., list[Tensor]]  # a body as a function of real tensors


@dataclass
class Body:
    """A captured function: its step, ready for both executions, and how to run it on the host."""

    step: CapturedStep
    compile_for: Callable[[CapturedStep, torch.device], HostForm]
    _host: dict[torch.device, HostForm] = field(default_factory=dict)
    # (state, rows, captured, count, is_reversed) → results, where a backend has compiled the loop
    scan: Callable[..., list[Tensor]] | None = None

    def results(self) -> list[Tensor]:
        """The fake tensors the function returned."""
        return [node.meta["val"] for node in self.step.results()]

    def on_host(self, device: torch.device) -> HostForm:
        """The function of real tensors on a device."""
        if device not in self._host:
            self._host[device] = self.compile_for(self.step, device)
        return self._host[device]


# The operations of loops hold keys: a key is a digest of all its body, so equal bodies are one.
_bodies: dict[str, Body] = {}
BODY_ARGUMENTS = ("body", "then_body", "else_body", "condition_body")


def enter_body(key: str, body: Body) -> None:
    _bodies.setdefault(key, body)


def body_of(key: str) -> Body:
    return _bodies[key]


def bodies_in(node: fx.Node) -> list[CapturedStep]:
    """The bodies of a loop or a branch; none for other nodes."""
    if node.op != "call_function":
        return []
    keys = [str(node.args[i]) for i in _places_of_bodies(node.target) if i < len(node.args)]
    return [_bodies[key].step for key in keys if key in _bodies]


@cache
def _places_of_bodies(target: Callable) -> tuple[int, ...]:
    """Which arguments of an operation are keys of bodies."""
    schema = getattr(target, "_schema", None)
    arguments = schema.arguments if schema else ()
    return tuple(i for i, argument in enumerate(arguments) if argument.name in BODY_ARGUMENTS)


def all_nodes(step: CapturedStep) -> Iterator[fx.Node]:
    """The nodes of a step and of all bodies in it."""
    for node in step.graph.nodes:
        yield node
        for body in bodies_in(node):
            yield from all_nodes(body)
