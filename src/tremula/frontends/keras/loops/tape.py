"""What loops are written with: `tf.range`, `tf.GradientTape`, gradients that are only applied.

While a loop is recorded, a range has one round, a tape marks the loss, and gradients are names that
an optimiser takes; otherwise everything computes as Keras does.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NoReturn, Self, SupportsInt

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
    """`tf.GradientTape`: inside, operations on variables and watched tensors are differentiated."""

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True):
        del watch_accessed_variables  # PyTorch records what it needs
        self._is_persistent, self._is_used = persistent, False
        self._enabled = torch.enable_grad()

    def __enter__(self) -> Self:
        self._enabled = torch.enable_grad()
        self._enabled.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._enabled.__exit__(kind, error, trace)

    def watch(self, tensor: object) -> None:
        """Record what is computed of these tensors, too; of variables it is recorded anyway."""
        for each in keras.tree.flatten(tensor):
            if isinstance(each, Tensor):
                each.requires_grad_()
            elif not isinstance(each, keras.Variable):
                raise keras_error(
                    f"tape.watch takes tensors and variables; got {type(each).__name__}.",
                    hint="tf.constant(value) makes a tensor",
                )

    def gradient(
        self,
        target: object,
        sources: object,
        output_gradients: Tensor | None = None,
        unconnected_gradients: object = "none",
    ) -> Any:  # noqa: ANN401 - as the sources are
        """Gradients of a value, the sum of its elements if it has several, by variables."""
        losses = keras.tree.flatten(target)
        flat = keras.tree.flatten(sources)
        state = _recorded.get()
        if state is not None:
            gradients = _marked(state, losses, flat, output_gradients)
        else:
            gradients = self._computed(losses, flat, output_gradients)
        if str(getattr(unconnected_gradients, "value", unconnected_gradients)) == "zero":
            pairs = zip(gradients, flat, strict=True)
            gradients = [keras.ops.zeros_like(s) if g is None else g for g, s in pairs]
        return keras.tree.pack_sequence_as(sources, gradients)

    def _computed(
        self, losses: Sequence[Tensor], flat: Sequence[Any], output: Tensor | None
    ) -> list[Tensor | None]:
        if self._is_used and not self._is_persistent:
            raise keras_error(
                "tape.gradient was called twice.", hint="tf.GradientTape(persistent=True)"
            )
        self._is_used = True
        tensors = [each.value if isinstance(each, keras.Variable) else each for each in flat]
        reached = [each for each in losses if each.requires_grad]
        known = [each for each in tensors if isinstance(each, Tensor) and each.requires_grad]
        if not reached or not known:
            return [None] * len(flat)
        upstream = [torch.ones_like(each) if output is None else output for each in reached]
        results = torch.autograd.grad(
            reached, known, upstream, allow_unused=True, retain_graph=self._is_persistent
        )
        of_tensor = {id(each): result for each, result in zip(known, results, strict=True)}
        return [of_tensor.get(id(each)) for each in tensors]

    def watched_variables(self) -> tuple[keras.Variable, ...]:
        """Not known: PyTorch records operations, not variables."""
        raise keras_error(
            "tape.watched_variables is not supported.", hint="use model.trainable_variables"
        )

    def stop_recording(self) -> AbstractContextManager[None]:
        """Operations of the block are not differentiated."""
        return torch.no_grad()  # pyright: ignore[reportReturnType]

    def reset(self) -> None:
        """Forget what was recorded."""
        self._is_used = False


def _marked(
    state: Round, losses: Sequence[Tensor], flat: Sequence[Any], output: Tensor | None
) -> list[Gradient]:
    """Names of the gradients of a round that is recorded."""
    if len(losses) != 1 or output is not None:
        raise keras_error(
            "a compiled loop differentiates one loss.", hint="add the losses before tape.gradient"
        )
    if not all(isinstance(each, keras.Variable) for each in flat):
        raise keras_error(
            "a compiled loop differentiates by variables only.", hint="model.trainable_variables"
        )
    (target,) = losses
    loss = keras.ops.sum(target) if target.ndim else target
    assert isinstance(loss, Tensor), "Keras computes with PyTorch"
    state.loss = loss
    recording = active()
    if recording is not None:
        recording.losses[:] = [loss]
    return [Gradient(variable) for variable in flat]


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
        raise keras_error("a compiled step or loop updates weights once in each round.")
    marked = [grad for grad in grads if isinstance(grad, Gradient)]
    if len(marked) != len(grads):
        raise keras_error(
            "an optimiser in a compiled step or loop takes the gradients that tape.gradient gave.",
            hint="optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))",
        )
    state.optimizer = self
    state.trained = [grad.variable for grad in marked] if variables is None else list(variables)
