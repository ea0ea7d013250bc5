"""Sessions of a task: named inputs and outputs, and checkpoints of a model's variables."""

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

import popxl
from tremula.frontends.popxl_addons.named.tensors import NamedTensors
from tremula.frontends.popxl_addons.streams import InputStreams, OutputStreams

Missing = Literal["none", "warn", "error"]


class TaskSession(popxl.Session):
    """A session that knows its streams and its model by name."""

    def __init__(
        self,
        inputs: InputStreams | Iterable[popxl.HostToDeviceStream],
        outputs: OutputStreams | Iterable[popxl.DeviceToHostStream],
        model: NamedTensors,
        *args: Any,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        is_named = isinstance(inputs, InputStreams)
        self.inputs = inputs if is_named else InputStreams.from_streams(inputs)
        is_named = isinstance(outputs, OutputStreams)
        self.outputs = outputs if is_named else OutputStreams.from_streams(outputs)
        self.model = model

    def save_checkpoint(self, file_path: str | os.PathLike[str]) -> None:
        """Write the variables of the model to a file of NumPy, by name."""
        path = Path(file_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        result = _values(self)
        np.savez(path, **result)

    def load_checkpoint(
        self, file_path: str | os.PathLike[str], report_missing: Missing = "warn"
    ) -> None:
        """Read variables of the model that a file has."""
        with np.load(file_path) as result:
            self._load({name: result[name] for name in result.files}, report_missing)

    def load_from_session(self, src: "TaskSession", report_missing: Missing = "none") -> None:
        """Take over variables of the same names from another session."""
        self._load(_values(src), report_missing)

    def _load(self, arrays: Mapping[str, np.ndarray], report_missing: Missing) -> None:
        own: dict[str, Any] = dict(self.model.to_dict())
        _report(set(arrays), set(own), report_missing)
        self.write_variables_data({own[name]: arrays[name] for name in own if name in arrays})


def _values(session: TaskSession) -> dict[str, Any]:
    model: dict[str, Any] = dict(session.model.to_dict())
    return {name: session.get_tensor_data(t) for name, t in model.items()}


def _report(given: set[str], own: set[str], how: Missing) -> None:
    lines = []
    if given - own:
        lines.append(f"not in the model: {', '.join(sorted(given - own))}")
    if own - given:
        lines.append(f"not in the checkpoint: {', '.join(sorted(own - given))}")
    if not lines or how == "none":
        return
    text = "Variables are " + "; ".join(lines)
    if how == "error":
        raise ValueError(text)
    logging.getLogger("popxl_addons").warning(text)
