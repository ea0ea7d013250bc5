"""The pipeline stages of layers: set by a context, saved with the layer, read while recording.

    with ipu.PipelineStage(0):
        x = layers.Dense(64)(x)

A layer belongs to the stage that it is called in or, if it is called outside of any, to the one
that it was built in. Notes are saved in a layer's `__dict__`: Keras tracks what attributes are set.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import keras

from tremula.base.context_values import pushed
from tremula.base.libraries.patching import wrapped
from tremula.frontends.keras.errors import keras_error
from tremula.ir.recording import active
from tremula.ir.step import BlockPlace

Layer = keras.layers.Layer
Path = tuple[tuple[int, int], ...]  # id of a layer and number of its call, from the outermost on
_BUILT_IN, _CALLED_IN = "_tremula_stage", "_tremula_stage_of_node"
# Stages of the contexts that this thread has open, the innermost last.
_entered: ContextVar[tuple[int, ...]] = ContextVar("keras_pipeline_stages", default=())


class PipelineStage:
    """Layers that are built or called inside are of this stage."""

    def __init__(self, stage: int):
        if isinstance(stage, bool) or not isinstance(stage, int) or stage < 0:
            raise keras_error(
                f"a pipeline stage is a whole number from 0 on; got {stage!r}.",
                hint="with ipu.PipelineStage(0): …",
            )
        self.stage = stage
        self._blocks = ExitStack()

    def __enter__(self) -> Self:
        self._blocks.enter_context(pushed(_entered, self.stage))
        if active() is None:  # a model is being built
            self._blocks.enter_context(wrapped(Layer, "__init__", _noting_stage))
            self._blocks.enter_context(wrapped(Layer, "__call__", _noting_node))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._blocks.close()


def _noting_stage(plain: Callable) -> Callable:
    def __init__(self: Layer, *args: object, **kwargs: object) -> None:  # noqa: N807
        plain(self, *args, **kwargs)
        self.__dict__[_BUILT_IN] = _innermost_stage()

    return __init__


def _noting_node(plain: Callable) -> Callable:
    def __call__(self: Layer, *args: object, **kwargs: object) -> object:  # noqa: N807
        before = len(self._inbound_nodes)
        result = plain(self, *args, **kwargs)
        if len(self._inbound_nodes) > before:
            notes = self.__dict__.setdefault(_CALLED_IN, {})
            notes[len(self._inbound_nodes) - 1] = _innermost_stage()
        return result

    return __call__


def _innermost_stage() -> int | None:
    entered = _entered.get()
    return entered[-1] if entered else None


def stage_of(layer: Layer, node_index: int = 0) -> int | None:
    """The stage of a layer where a node of a model calls it; None if it has none."""
    called = layer.__dict__.get(_CALLED_IN, {})
    return called.get(node_index, layer.__dict__.get(_BUILT_IN))


def invocations(model: keras.Model) -> list[tuple[Layer, int]]:
    """Layers in the order in which a model calls them, with the numbers of their nodes.

    Of a model whose `call` is Python code only the layers are known; each counts once.
    """
    if isinstance(model, keras.Sequential) or not hasattr(model, "_nodes_by_depth"):
        own = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
        return [(layer, 0) for layer in own]
    result = []
    for _, nodes in sorted(model._nodes_by_depth.items(), reverse=True):
        for node in nodes:
            layer = node.operation
            if isinstance(layer, Layer) and not node.is_input:
                result.append((layer, layer._inbound_nodes.index(node)))
    return result


def stages_of(model: keras.Model, prefix: Path = ()) -> dict[Path, int | None]:
    """The stage of every call of a layer that is not a model itself."""
    result: dict[Path, int | None] = {}
    numbers: dict[int, int] = {}
    for layer, node in invocations(model):
        number = numbers.get(id(layer), 0)
        numbers[id(layer)] = number + 1
        path, stage = (*prefix, (id(layer), number)), stage_of(layer, node)
        if isinstance(layer, keras.Model) and stage is None:
            result.update(stages_of(layer, path))
        else:
            result[path] = stage
    return result


# -- while a step is recorded ----------------------------------------------------------------------


@dataclass
class StagesOfCalls:
    """Opens the block of a stage whenever a layer of it is called."""

    model: keras.Model
    stages: Mapping[Path, int | None]
    chips: Mapping[int, int]  # of stages
    runs: Mapping[int, int]  # of stages: those that follow each other on one chip run as one
    _path: list[tuple[int, int]] = field(default_factory=list)
    _numbers: dict[Path, int] = field(default_factory=dict)
    _is_inside: bool = False  # of a layer that has a stage

    @contextmanager
    def calling(self, layer: Layer) -> Iterator[None]:
        """The block of a layer's stage, unless a layer around it has one."""
        if layer is self.model or self._is_inside:
            yield
            return
        key = (*self._path, (id(layer), -1))
        number = self._numbers.get(key, 0)
        self._numbers[key] = number + 1
        self._path.append((id(layer), number))
        self._is_inside = self._start(layer)
        try:
            yield
        finally:
            self._is_inside = False
            self._path.pop()

    def _start(self, layer: Layer) -> bool:
        """Whether the layer has a stage; one without must be a model, whose layers have."""
        stage = _innermost_stage()
        if stage is None:
            stage = self.stages.get(tuple(self._path))
        if stage is None:  # of a model with a `call` in Python only the layers are known
            stage = self.stages.get((*self._path[:-1], (id(layer), 0)))
        if stage is None:
            stage = stage_of(layer)
        recording = active()
        if stage is not None and recording is not None:
            chip = self.chips.get(stage, stage)
            place = BlockPlace(chip, self.runs.get(stage, stage), order=stage)
            recording.start_block(str(stage), chip, place)
        elif not isinstance(layer, keras.Model):
            raise keras_error(
                f"layer {layer.name!r} ({type(layer).__name__}) of {self.model.name!r} has no"
                " pipeline stage, while others have one.",
                hint="build or call it inside `with ipu.PipelineStage(…):`, or give all layers a"
                " stage by model.set_pipeline_stage_assignment",
            )
        return stage is not None
