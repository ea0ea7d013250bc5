"""`model.export_for_ipu_serving`: predictions of a batch, with what comes before and after them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import torch

from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.machine import tile_settings
from tremula.frontends.keras.options import PREDICT
from tremula.frontends.keras.program import compile_keras
from tremula.frontends.keras.served import write_served
from tremula.frontends.keras.step import StepOfModel
from tremula.frontends.shared.served_file import FILE_NAME
from tremula.ir.run.compiled_step import StepSettings
from tremula.ir.settings import HostSettings, host_settings

Function = Callable[..., object]


@dataclass
class ServedStep(StepOfModel):
    """A prediction between two functions of the script."""

    before: Function | None = None
    after: Function | None = None

    def _predict(self, x: object, _y: object, _sample_weight: object) -> object:
        with torch.no_grad():
            if self.before is not None:
                x = self.before(*x) if isinstance(x, list | tuple) else self.before(x)
            result = super()._predict(x, None, None)
            return result if self.after is None else self.after(result)


def export(
    model: keras.Model,
    folder: str | Path,
    batch_size: int,
    *,
    before: Function | None = None,
    after: Function | None = None,
    input_shapes: Sequence[tuple[int, ...]] | None = None,
    has_tiles: bool = True,
) -> Path:
    """Write a model for batches of one size; the path of its file."""
    specs = _specs(model, input_shapes)
    batch = [torch.zeros((batch_size, *shape), dtype=dtype) for shape, dtype in specs]
    inputs = [0] * len(batch) if len(batch) > 1 else 0
    step = ServedStep(model, PREDICT, (inputs,), before=before, after=after)
    host = host_settings()
    settings = StepSettings(
        host=HostSettings(host="eager", device="cpu", chip=host.chip), tiles=tile_settings(host)
    )
    program = compile_keras(step, batch, settings)
    program.run([batch])  # gives the device its weights
    path = Path(folder) / FILE_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    n_outputs = len(keras.tree.flatten(step.result))
    names = [str(name) for name in getattr(model, "output_names", [])]
    if len(names) != n_outputs:
        names = [f"output_{i}" for i in range(n_outputs)]
    write_served(path, model.name, program.program, names, has_tiles=has_tiles)
    return path


def _specs(
    model: keras.Model, shapes: Sequence[tuple[int, ...]] | None
) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Shape without batch and type of each input."""
    if shapes is not None:
        return [(tuple(shape), torch.float32) for shape in shapes]
    if not getattr(model, "inputs", None):
        raise keras_error(
            f"the inputs of {model.name!r} are not known: its call is Python code.",
            hint="give input_shapes=[…], without the batch",
        )
    result = []
    for tensor in model.inputs:
        if None in tensor.shape[1:]:
            raise keras_error(
                f"input {tensor.name!r} of {model.name!r} has the shape {tensor.shape}: a program"
                " has static shapes.",
                hint="build the model with whole shapes, or give input_shapes=[…]",
            )
        result.append((tuple(tensor.shape[1:]), getattr(torch, str(tensor.dtype))))
    return result
