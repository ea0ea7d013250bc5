"""poptorch.MultiConv: convolutions that are planned together, with settings for the planner."""

from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import torch

from tremula.frontends.poptorch.enums import MultiConvPlanType
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.ir.nodes import schema_name
from tremula.ir.origin import ORIGIN, Choices
from tremula.ir.recorder import Recorder
from tremula.ir.recording import Recording, active

_CONVOLUTION = "aten::convolution"
_PARTIALS = {torch.float: "float", torch.half: "half"}


class MultiConv:
    """Convolutions inside `with poptorch.MultiConv():` are planned together.

    A setting is one value for all of them, or a list with one value for each, in order.
    """

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}
        self._recording: Recording | None = None
        self._n_nodes_before = 0

    def availableMemoryProportions(self, value: float | list[float]) -> Self:  # noqa: N802
        """The share of a tile's memory that each may use."""
        name = "available memory proportions"
        return self._set(name, value, lambda v: isinstance(v, float | int) and 0 <= v <= 1)

    def partialsTypes(self, value: torch.dtype | list[torch.dtype]) -> Self:  # noqa: N802
        """The type of partial sums: torch.float or torch.half."""
        return self._set("partials types", value, lambda v: v in _PARTIALS)

    def enableConvDithering(self, value: bool | list[bool]) -> Self:  # noqa: N802
        """Let convolutions, and their gradients, start on tiles that their dimensions choose."""
        return self._set("conv dithering", value, lambda v: isinstance(v, bool))

    def planType(self, value: MultiConvPlanType) -> Self:  # noqa: N802
        """Whether they run together or one after the other."""
        assert isinstance(value, MultiConvPlanType), "Invalid plan type!"
        self._settings["plan type"] = value.name
        return self

    def perConvReservedTiles(self, value: int) -> Self:  # noqa: N802
        """The least number of tiles each of them gets when they run together."""
        assert isinstance(value, int), "Invalid number of reserved tiles!"
        self._settings["reserved tiles"] = value
        return self

    def cycleBackOff(self, value: float) -> Self:  # noqa: N802
        """How far a plan may be from the fastest, so that they fit side by side."""
        assert isinstance(value, float | int), "Invalid cycle back off!"
        self._settings["cycle back off"] = float(value)
        return self

    def _set(self, name: str, value: object, is_valid: Callable[[Any], bool]) -> Self:
        values = list(value) if isinstance(value, list | tuple) else [value]
        if not values or not all(is_valid(item) for item in values):
            raise ValueError(f"Invalid {name}: {value!r}")
        self._settings[name] = values if isinstance(value, list | tuple) else value
        return self

    def __enter__(self) -> Self:
        self._recording = recording = active()
        if recording is None:
            return self
        if recording.multi_conv is not None:
            raise createPoptorchError("Nested poptorch.MultiConv is not supported")
        recording.multi_conv = self
        self._n_nodes_before = len(recording.recorder.graph.nodes)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recording, self._recording = self._recording, None
        if recording is None:
            return
        recording.multi_conv = None
        if kind is None:
            self._note(recording.recorder)

    def _note(self, recorder: Recorder) -> None:
        """Write the settings to the convolutions that were recorded."""
        nodes = list(recorder.graph.nodes)[self._n_nodes_before :]
        result = [node for node in nodes if schema_name(node) == _CONVOLUTION]
        if not result:
            raise createPoptorchError("Unexpected end_multi_conv")
        for name, value in self._settings.items():
            if isinstance(value, list) and len(value) != len(result):
                raise createPoptorchError(
                    f"MultiConv has {len(value)} {name}, but {len(result)} convolutions."
                )
        for index, node in enumerate(result):
            recorder.replace_origin(node, self._noted(node.meta[ORIGIN], index))

    def _noted(self, origin: Any, place: int) -> Any:  # noqa: ANN401
        chosen = {
            name: value[place] if isinstance(value, list) else value
            for name, value in self._settings.items()
        }
        notes = tuple((f"multi conv {name}", str(value)) for name, value in chosen.items())
        choices = Choices(
            chosen.get("available memory proportions"),
            _PARTIALS.get(chosen.get("partials types")),  # pyright: ignore[reportArgumentType]
            chosen.get("conv dithering"),
        )
        attributes = (*origin.attributes, ("multi conv", str(place)), *notes)
        return replace(origin, attributes=attributes).choosing(choices)
