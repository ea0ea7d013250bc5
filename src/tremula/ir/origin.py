"""Where an operation of a captured step comes from: module, source line, phase, block."""

import sys
from dataclasses import dataclass, replace

from tremula.base.source import Source, is_framework_code, source_at

FORWARD, BACKWARD, OPTIMISER = "forward", "backward", "optimiser"
ORIGIN = "origin"  # the key under which a node's meta holds its Origin


@dataclass(frozen=True)
class Choices:
    """What a program says about how one operation is planned; None: as the session says.

    The operations of its gradient are planned alike.
    """

    available_memory: float | None = None  # share of a tile that a product's data may take
    partials_type: str | None = None  # of a product's sums, "half" or "float"
    dithers: bool | None = None  # whether a convolution begins where its dimensions choose

    def inside(self, outer: "Choices") -> "Choices":
        """These choices, and those of `outer` where they say nothing."""
        overrides = {name: value for name, value in vars(self).items() if value is not None}
        return replace(outer, **overrides)


NO_CHOICES = Choices()


@dataclass(frozen=True)
class Origin:
    """What every node of a captured step knows about itself."""

    phase: str
    module: str = ""  # dotted path of the module whose forward ran the operation
    source: Source | None = None  # the innermost line outside PyTorch and Tremula
    block: int | None = None  # index into the step's list of blocks
    scope: tuple[str, ...] = ()  # poptorch.NameScope, outermost first
    attributes: tuple[tuple[str, str], ...] = ()  # poptorch.Attribute
    choices: Choices = NO_CHOICES  # how it is planned
    is_recomputed: bool = False  # by torch.utils.checkpoint, in the backward pass

    def choosing(self, choices: Choices) -> "Origin":
        return replace(self, choices=choices.inside(self.choices))

    def in_phase(self, phase: str) -> "Origin":
        return replace(self, phase=phase)

    @property
    def path(self) -> str:
        """Name of the operation's place for reports: scopes, then the module."""
        return "/".join((*self.scope, *([self.module] if self.module else [])))


def model_line(excludes: tuple[str, ...] = ()) -> Source | None:
    """The innermost line of the model's own code that is running now, or None."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not is_framework_code(name) and not any(part in name for part in excludes):
            return source_at(name, frame.f_lineno)
        frame = frame.f_back
    return None
