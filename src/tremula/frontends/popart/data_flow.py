"""How data moves between a script and a step: inputs, anchored tensors, arrays and callbacks."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from tremula.frontends.popart.enums import (
    AnchorReturnTypeId,
    ExchangeStrategy,
    ReplicatedStreamMode,
    TileSet,
)
from tremula.frontends.popart.exceptions import popart_exception

_KINDS = {kind.name.upper(): kind for kind in AnchorReturnTypeId}


class AnchorReturnType:
    """`AnchorReturnType("All")`, "Final", "Sum", or `AnchorReturnType("EveryN", 4)`."""

    def __init__(
        self,
        anchorReturnTypeString: str,
        returnPeriod: int | TileSet | None = None,
        tileSet: TileSet = TileSet.Compute,
        exchangeStrategy: ExchangeStrategy = ExchangeStrategy.JustInTime,
    ):
        if isinstance(returnPeriod, TileSet):
            returnPeriod, tileSet = None, returnPeriod
        self._text = str(anchorReturnTypeString)
        kind = _KINDS.get(self._text.upper())
        if kind is None:
            raise popart_exception(f"Invalid anchor return type ID supplied: {self._text}")
        if kind is not AnchorReturnTypeId.EveryN and returnPeriod is not None:
            raise popart_exception(
                "A return period should not be supplied for this anchor return type"
            )
        if kind is AnchorReturnTypeId.EveryN and (returnPeriod is None or int(returnPeriod) <= 0):
            raise popart_exception(
                "Must specify return period with option 'EVERYN'"
                if returnPeriod is None
                else "Anchor return period must be greater than zero"
            )
        self._kind, self._period = kind, returnPeriod
        self._tiles, self._strategy = tileSet, exchangeStrategy

    def id(self) -> AnchorReturnTypeId:
        """Which values are returned."""
        return self._kind

    def rp(self) -> int:
        """The number of batches between two returned values."""
        if self._period is None:
            raise popart_exception(
                "A return period should not be supplied for this anchor return type"
            )
        return int(self._period)

    def tileSet(self) -> TileSet:
        """The tiles that send values."""
        return self._tiles

    def exchangeStrategy(self) -> ExchangeStrategy:
        """When values are sent."""
        return self._strategy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnchorReturnType) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        period = "" if self._period is None else f", {self._period}"
        return f'AnchorReturnType("{self._kind.name}"{period})'


def _checked_batches(n_batches: int) -> int:
    if int(n_batches) < 1:
        raise popart_exception(f"batchesPerStep must be at least 1, got {n_batches}")
    return int(n_batches)


class DataFlow:
    """How many batches a step takes, and which tensors it returns.

    `DataFlow(4, {id: AnchorReturnType("All")})` or `DataFlow(4, [ids], AnchorReturnType("Sum"))`.
    """

    def __init__(
        self,
        batchesPerStep: int = 0,
        anchorTensors: Mapping[str, AnchorReturnType] | Iterable[str] = (),
        anchorReturnType: AnchorReturnType | None = None,
        *,
        anchorIds: Iterable[str] | None = None,
    ):
        self._n_batches = _checked_batches(batchesPerStep)
        anchorTensors = anchorTensors if anchorIds is None else anchorIds
        if not isinstance(anchorTensors, Mapping):
            kind = anchorReturnType or AnchorReturnType("All")
            anchorTensors = {str(id): kind for id in anchorTensors}
        self._anchors = {str(id): kind for id, kind in anchorTensors.items()}
        for id, kind in self._anchors.items():
            if not isinstance(kind, AnchorReturnType):
                raise popart_exception(f"The anchor {id!r} needs an AnchorReturnType, got {kind!r}")
            self._check_period(id, kind)

    def _check_period(self, id: str, kind: AnchorReturnType) -> None:
        if kind.id() is not AnchorReturnTypeId.EveryN:
            return
        if kind.rp() > self._n_batches:
            raise popart_exception(
                "Return period must be <= to the number of batches per step: it is"
                f" {kind.rp()} for {id!r}, of {self._n_batches}"
            )
        if self._n_batches % kind.rp():
            raise popart_exception(
                "Return period must be a factor of the number of batches per step: it is"
                f" {kind.rp()} for {id!r}, of {self._n_batches}"
            )

    def isAnchored(self, id: str) -> bool:
        """Whether a tensor is returned."""
        return id in self._anchors

    def anchors(self) -> list[str]:
        """The tensors that are returned."""
        return list(self._anchors)

    def nAnchors(self) -> int:
        """How many tensors are returned."""
        return len(self._anchors)

    def batchesPerStep(self) -> int:
        """How many batches a step takes."""
        return self._n_batches

    def setBatchesPerStep(self, batchesPerStep: int) -> None:
        """Change how many batches a step takes; sessions made before keep their number."""
        self._n_batches = _checked_batches(batchesPerStep)

    def art(self, id: str) -> AnchorReturnType:
        """Which values of a tensor are returned."""
        return self._anchors[id]


class InputSettings:
    """`InputSettings(tiles, strategy)` or `InputSettings(ReplicatedStreamMode.Broadcast)`."""

    def __init__(
        self,
        tileSet: TileSet | ReplicatedStreamMode = TileSet.Compute,
        exchangeStrategy: ExchangeStrategy = ExchangeStrategy.JustInTime,
        replicatedStreamMode: ReplicatedStreamMode = ReplicatedStreamMode.Replicate,
    ):
        if isinstance(tileSet, ReplicatedStreamMode):
            replicatedStreamMode, tileSet = tileSet, TileSet.Compute
        self._tiles, self._strategy, self._mode = tileSet, exchangeStrategy, replicatedStreamMode

    def tileSet(self) -> TileSet:
        """The tiles that receive the input."""
        return self._tiles

    def exchangeStrategy(self) -> ExchangeStrategy:
        """When the input moves."""
        return self._strategy

    def replicatedStreamMode(self) -> ReplicatedStreamMode:
        """Whether each replica reads its own micro-batches."""
        return self._mode

    @property
    def is_broadcast(self) -> bool:
        """Whether all replicas read the same micro-batch."""
        return self._mode is ReplicatedStreamMode.Broadcast


class IStepIO:
    """Base of what provides the inputs of a step and receives its anchors."""


class IWeightsIO:
    """Base of what holds arrays for weights."""


def contiguous(array: np.ndarray, id: str, what: str) -> np.ndarray:
    """An array as it is; raises if its elements are not in the order of its shape."""
    result = np.asarray(array)
    if not result.flags.c_contiguous:
        raise popart_exception(
            f"PyStepIO is unable to use the numpy {what} array for tensor '{id}' as it is not"
            " c-contiguous: copy it with np.ascontiguousarray"
        )
    return result


class PyStepIO(IStepIO):
    """Inputs of a step by id, and the arrays that receive its anchors."""

    def __init__(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]):
        self.inputs = {id: contiguous(array, id, "input") for id, array in inputs.items()}
        self.outputs = {id: contiguous(array, id, "output") for id, array in outputs.items()}
        self.has_asserts = True

    def enableRuntimeAsserts(self, enable: bool) -> None:
        """Whether arrays are checked."""
        self.has_asserts = bool(enable)


class PyStepIOCallback(IStepIO):
    """Functions that provide inputs and receive outputs, one micro-batch at a time.

    `input_callback(id, is_prefetch)` returns an array, or None if there is nothing to prefetch;
    `output_callback(id)` returns an array to be filled. The other two are called when a transfer
    has ended.
    """

    def __init__(
        self,
        input_callback: Callable[[str, bool], np.ndarray],
        input_complete_callback: Callable[[str], object],
        output_callback: Callable[[str], np.ndarray],
        output_complete_callback: Callable[[str], object],
    ):
        self.input, self.input_complete = input_callback, input_complete_callback
        self.output, self.output_complete = output_callback, output_complete_callback


class PyWeightsIO(IWeightsIO):
    """Arrays for weights by id, to read from or write to."""

    def __init__(self, weights: Mapping[str, np.ndarray]):
        self.weights = dict(weights)

    def weight(self, id: str) -> np.ndarray:
        """The array of a weight."""
        if id not in self.weights:
            raise popart_exception(f"No array for the weight {id!r} in this PyWeightsIO")
        return self.weights[id]
