"""A program as the server sees it: rows in, rows out, a fixed number of them at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tremula.base.errors import InvalidOption, RuntimeFailure
from tremula.serving.tensors import ServedTensor

Run = Callable[[list[np.ndarray]], Sequence[np.ndarray]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedProgram:
    """A compiled model. `run` takes whole batches, and is called from one thread."""

    name: str
    platform: str  # "tremula_poptorch", …
    batch_size: int
    inputs: tuple[ServedTensor, ...]
    outputs: tuple[ServedTensor, ...]
    run: Run

    def __post_init__(self) -> None:
        if self.batch_size < 1 or not self.inputs or not self.outputs:
            raise InvalidOption(
                f"{self.name!r} cannot be served: it has a batch of {self.batch_size}, "
                f"{len(self.inputs)} inputs and {len(self.outputs)} outputs.",
                hint="a served program needs at least one of each",
            )
        for spec in (*self.inputs, *self.outputs):
            assert spec.datatype, "a type the protocol has"

    @property
    def n_row_bytes(self) -> int:
        """Of the inputs."""
        return sum(spec.n_row_bytes for spec in self.inputs)

    def zeros(self) -> list[np.ndarray]:
        """A batch of zeros, to fill or to warm up with."""
        return [np.zeros((self.batch_size, *spec.shape), spec.dtype) for spec in self.inputs]

    def checked_run(self, batch: list[np.ndarray]) -> list[np.ndarray]:
        """The outputs of a batch; other shapes or types than promised are errors."""
        result = [np.asarray(array) for array in self.run(batch)]
        shapes = [(self.batch_size, *spec.shape) for spec in self.outputs]
        if [array.shape for array in result] != shapes:
            raise RuntimeFailure(
                f"{self.name!r} gave shapes {[a.shape for a in result]}, not {shapes}."
            )
        return [
            a.astype(spec.dtype, copy=False) for a, spec in zip(result, self.outputs, strict=True)
        ]


def program_from_call(
    run: Run,
    inputs: Sequence[np.ndarray],
    *,
    name: str,
    platform: str,
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
) -> ServedProgram:
    """A program from a call with a batch: shapes and types of outputs are those of its results."""
    sizes = {array.shape[:1] for array in inputs}
    if sizes in ({()}, set()) or len(sizes) != 1:
        raise InvalidOption(
            f"the inputs of {name!r} differ in their first size, the batch: "
            f"{[array.shape for array in inputs]}.",
            hint="serve a model whose inputs all have the batch as their first dimension",
        )
    ((batch_size,),) = sizes
    result = [np.asarray(array) for array in run(list(inputs))]
    for array in result:
        if array.shape[:1] != (batch_size,):
            raise InvalidOption(
                f"an output of {name!r} has the shape {array.shape}, whose first size is not the "
                f"batch of {batch_size}: it cannot be split into rows.",
                hint="return one row per row of the inputs",
            )
    return ServedProgram(
        name=name,
        platform=platform,
        batch_size=batch_size,
        inputs=_specs(inputs, input_names, "input"),
        outputs=_specs(result, output_names, "output"),
        run=run,
    )


def _specs(
    arrays: Sequence[np.ndarray], names: Sequence[str], word: str
) -> tuple[ServedTensor, ...]:
    names = names or [f"{word}{i}" for i in range(len(arrays))]
    return tuple(
        ServedTensor(name, array.dtype, array.shape[1:])
        for name, array in zip(names, arrays, strict=True)
    )
