"""What all parts of PoplarExecutor share: module, options, and the program once there is one."""

from functools import cached_property

from torch import Tensor, nn

from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.executor.compiled import CompiledModel
from tremula.frontends.poptorch.executor.names import graph_as_json
from tremula.frontends.poptorch.executor.randomness import restore, state_of
from tremula.frontends.poptorch.options.options import Options


class ExecutorBase:
    """A module and, from its first call on, its program."""

    def __init__(self, model: nn.Module, options: Options, training: bool):
        self._model = model
        self._options = options
        self._training = training
        self._compiled: CompiledModel | None = None
        self._n_runs = 0  # of this program
        self._rng_state: list[int] | None = None  # to start with
        self._anchored: dict[str, Tensor] = {}
        self._channel = "poptorch.trainingModel" if training else "poptorch.inferenceModel"

    @property
    def model(self) -> nn.Module:
        """The module that was wrapped."""
        return self._model

    @property
    def options(self) -> Options:
        """The options in use; they can no longer change."""
        return self._options

    @property
    def rng_state(self) -> list[int]:
        """The seed and the state of the device's random numbers; it can be set."""
        if self._compiled is None and self._rng_state is not None:
            return list(self._rng_state)
        return state_of(self._needs_compiled().random)

    @rng_state.setter
    def rng_state(self, state: list[int]) -> None:
        if self._compiled is None:
            self._rng_state = list(state)
        else:
            restore(self._compiled.random, list(state))

    def isCompiled(self) -> bool:  # noqa: N802
        """Whether there is a program."""
        return self._compiled is not None

    def _needs_compiled(self) -> CompiledModel:
        if self._compiled is None:
            raise createPoptorchError("Model has not been compiled or has been destroyed.")
        return self._compiled

    @cached_property
    def _name(self) -> str:
        """Under which reports and traces know the model."""
        if self._options.exists("model_name"):
            return self._options.model_name
        return "training" if self._training else "inference"

    def getTensorNames(self) -> list[str]:  # noqa: N802
        """Names of all tensors that can be anchored."""
        assert self._compiled is not None, (
            "Tensor names are only available after the model has been compiled."
        )
        return self._compiled.names.all(self._training)

    def getAnchoredTensor(self, short_name: str) -> Tensor:  # noqa: N802
        """The value of an anchored tensor in the last call."""
        anchored = self._options.anchored_tensors
        assert short_name in anchored, (
            f"{short_name!r} is not anchored: call Options.anchorTensor; anchored are "
            f"{', '.join(anchored) or 'none'}"
        )
        assert short_name in self._anchored, f"{short_name!r} is known after the first call"
        return self._anchored[short_name]

    def _debugGetPopartIR(self) -> str:  # noqa: N802
        return graph_as_json(self._needs_compiled().step)
