"""The active recording of a model: its block, its names, its losses. At most one per thread."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch

from tremula.base.context_values import set_inside
from tremula.base.source import Source
from tremula.ir.origin import FORWARD, NO_CHOICES, Choices, Origin, model_line
from tremula.ir.step import BlockOfOps, BlockPlace


@dataclass
class Recording:
    """What blocks, scopes and operations of a front end tell the capture while forward runs."""

    training: bool
    source_excludes: tuple[str, ...] = ()
    warn: Callable[[str], None] | None = None  # gets what a model's author should know
    strides_group_norms: bool = False  # groups of group norms are strided channels
    phase: str = FORWARD
    blocks: list[BlockOfOps] = field(default_factory=list)
    losses: list[torch.Tensor] = field(default_factory=list)
    wanted_gradients: list[torch.Tensor] = field(default_factory=list)  # by which the loss changes
    module_path: list[str] = field(default_factory=list)
    recorder: Any = None  # what writes the graph now: that of the step, or of a loop's body
    stand_ins: dict[int, torch.Tensor] = field(default_factory=dict)  # id of a fake -> its weight
    multi_conv: Any = None  # the group of convolutions that is open
    choices: Choices = NO_CHOICES  # how operations recorded now are planned
    source: Source | None = None  # the line of a front end whose programs do not run as Python
    _open_blocks: list[int | None] = field(default_factory=lambda: [None])
    _scope: list[str] = field(default_factory=list)
    _attributes: list[dict] = field(default_factory=list)
    _anonymous: int = 0

    @property
    def block(self) -> int | None:
        return self._open_blocks[-1]

    def start_block(
        self, user_id: str | int | None, ipu_id: int | None, place: BlockPlace | None = None
    ) -> None:
        """Replace the current block until the next one starts or the enclosing one ends."""
        self._open_blocks[-1] = self._index_of(user_id, ipu_id, place)

    def begin_block(
        self, user_id: str | int | None, ipu_id: int | None, place: BlockPlace | None = None
    ) -> None:
        """Open a block; `end_block` returns to the one around it."""
        self._open_blocks.append(self._index_of(user_id, ipu_id, place))

    def block_name(self, user_id: str | int | None) -> str:
        """The name of a block: its id, or the next number."""
        if user_id is None:
            user_id, self._anonymous = self._anonymous, self._anonymous + 1
        return str(user_id)

    def end_block(self) -> None:
        self._open_blocks.pop()

    def restart_auto_ids(self) -> None:
        self._anonymous = 0

    def push_name(self, name: str) -> None:
        self._scope.append(name)

    def pop_name(self) -> None:
        self._scope.pop()

    def push_attributes(self, attributes: dict) -> None:
        self._attributes.append(attributes)

    def pop_attributes(self) -> None:
        self._attributes.pop()

    def mark_loss(self, tensor: torch.Tensor) -> None:
        """Say that a tensor is a loss; the capture keeps the one that feeds no other."""
        self.losses.append(tensor)

    def want_gradient(self, tensor: torch.Tensor) -> None:
        """Return the loss's gradient by a tensor, too: behind all outputs, in this order."""
        self.wanted_gradients.append(tensor)

    def origin(self) -> Origin:
        """The origin of an operation that runs now."""
        attributes = {str(k): str(v) for layer in self._attributes for k, v in layer.items()}
        return Origin(
            self.phase,
            self.module_path[-1] if self.module_path else "",
            self.source or model_line(self.source_excludes),
            self.block,
            tuple(self._scope),
            tuple(attributes.items()),
            self.choices,
        )

    def _index_of(
        self, user_id: str | int | None, ipu_id: int | None, place: BlockPlace | None
    ) -> int:
        block = BlockOfOps(self.block_name(user_id), ipu_id, place)
        if block not in self.blocks:
            self.blocks.append(block)
        return self.blocks.index(block)


_active: ContextVar[Recording | None] = ContextVar("recording", default=None)


def active() -> Recording | None:
    """The active recording of this thread, or None."""
    return _active.get()


@contextmanager
def recording(state: Recording) -> Iterator[Recording]:
    """Make `state` the active recording of this thread inside the block."""
    with set_inside(_active, state):
        yield state


@contextmanager
def choosing(choices: Choices) -> Iterator[None]:
    """Operations that are recorded inside, and their gradients, are planned as `choices` say."""
    state = active()
    if state is None or choices == NO_CHOICES:
        yield
        return
    outer, state.choices = state.choices, choices.inside(state.choices)
    try:
        yield
    finally:
        state.choices = outer
