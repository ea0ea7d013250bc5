"""What loops are written with: `tf.range`, `tf.GradientTape`, gradients that are only applied.

While a loop is recorded, a range has one round, a tape marks the loss, and gradients are names that
an optimiser takes; otherwise everything computes as Keras does.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import NoReturn, Self, SupportsInt

import keras
import torch
from keras.src.optimizers.base_optimizer import BaseOptimizer
from torch import Tensor

from tremula.base.context_values import set_inside
from tremula.base.libraries.patching import replaced
from tremula.frontends.keras.errors import keras_error
from tremula.ir.recording import active


@dataclass
class Round:
    """What one round of a loop said about itself."""

    n_rounds: int = 0  # 0: there is no loop
    loss: Tensor | None = None
    trained: list[keras.Variable] = field(default_factory=list)
    optimizer: BaseOptimizer | None = None


_recorded: ContextVar[Round | None] = ContextVar("recorded_round", default=None)


@dataclass(frozen=True)
class Gradient:
    """The gradient of a recorded loss by a variable: only an optimiser can use it."""

    variable: keras.Variable

    def __getattr__(self, name: str) -> NoReturn:  # called for missing names only
        if name.startswith("__"):
            raise AttributeError(name)
        raise keras_error(
            f"the gradient by {self.variable.path!r} is used otherwise than by an optimiser.",
            hint="give clipnorm=…, clipvalue=… to the optimiser; compute with gradients outside of"
            " compiled loops",
        )


def loop_range(*limits: SupportsInt) -> Iterable[int]:
    """`tf.range`: the rounds of a loop that is compiled; whole numbers elsewhere."""
    rounds = range(*(int(limit) for limit in limits))
    state = _recorded.get()
    if state is None:
        return rounds
    if state.n_rounds:
        raise keras_error(
            "a compiled function has one loop over tf.range.", hint="use range(…) for inner loops"
        )
    state.n_rounds = len(rounds)
    return rounds[:1]


def function(func: Callable | None = None, **_choices: object) -> Callable:
    """`tf.function`: the function itself; `strategy.run` compiles it."""
    return (lambda inner: inner) if func is None else func


class GradientTape:
    """`tf.GradientTape`: inside, operations on variables can be differentiated."""

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True):
        del persistent, watch_accessed_variables  # PyTorch keeps what it needs
        self._enabled = torch.enable_grad()

    def __enter__(self) -> Self:
        self._enabled.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._enabled.__exit__(kind, error, trace)

    def gradient(
        self, target: Tensor, sources: Sequence[keras.Variable]
    ) -> list[Tensor | None] | list[Gradient]:
        """Gradients of a loss by variables."""
        loss = keras.ops.sum(target) if target.ndim else target
        assert isinstance(loss, Tensor), "Keras computes with PyTorch"
        state = _recorded.get()
        if state is None:
            return list(torch.autograd.grad(loss, [v.value for v in sources], allow_unused=True))
        state.loss = loss
        recording = active()
        if recording is not None:
            recording.losses[:] = [loss]
        return [Gradient(variable) for variable in sources]


@contextmanager
def recorded_round() -> Iterator[Round]:
    """Inside, a function runs one round, and optimisers record the gradients they get."""
    state = Round()
    with set_inside(_recorded, state), replaced(BaseOptimizer, "apply", _recording_apply):
        yield state


def _recording_apply(
    self: BaseOptimizer,
    grads: Sequence[object],
    variables: Iterable[keras.Variable] | None = None,
) -> None:
    state = _recorded.get()
    assert state is not None, "replaced inside recorded_round only"
    if state.optimizer is not None:
        raise keras_error("a compiled loop updates weights once in each round.")
    marked = [grad for grad in grads if isinstance(grad, Gradient)]
    if len(marked) != len(grads):
        raise keras_error(
            "an optimiser in a compiled loop takes the gradients that tape.gradient gave.",
            hint="optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))",
        )
    state.optimizer = self
    state.trained = [grad.variable for grad in marked] if variables is None else list(variables)
