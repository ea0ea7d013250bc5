"""Programs from files: ONNX models, saved PopTorch models, Keras models exported for serving."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tremula.base.errors import FileLoadError, InvalidOption
from tremula.frontends.shared.served_file import FILE_NAME
from tremula.serving.program import Run, ServedProgram, program_from_call

if TYPE_CHECKING:
    from tremula.frontends.poptorch.executor.poplar_executor import PoplarExecutor

_KERAS_MEMBER = "host.pt2"


def program_of_file(
    path: Path,
    *,
    name: str | None = None,
    batch_size: int | None = None,
    trusts_file: bool = False,
    on_tiles: bool = False,
) -> ServedProgram:
    """The program in a file. A PopTorch file can run code when it is read: `trusts_file`."""
    if not path.exists():
        raise FileLoadError(
            f"there is no file {str(path)!r}.",
            hint="give an .onnx file, a file of model.compileAndExport, or a folder of "
            "export_for_ipu_serving",
        )
    name = name or path.stem
    if path.suffix == ".onnx":
        return program_of_onnx(path, name=name, batch_size=batch_size, on_tiles=on_tiles)
    kind = _kind(path)
    if batch_size is not None:
        raise InvalidOption(
            f"{path.name} is compiled for its batch size; --batch is for ONNX models only.",
            hint="leave --batch out, or export the model again",
        )
    if kind == "keras":
        return _keras(path, name, on_tiles=on_tiles)
    if not trusts_file:
        raise InvalidOption(
            f"{path} holds a Python model, and reading it can run code.",
            hint="add --trust if you know who made it",
        )
    if on_tiles:
        raise InvalidOption(
            "a PopTorch file says itself where it runs.",
            hint="export it from a model with options.useIpuModel(True)",
        )
    return _poptorch_file(path, name)


def _kind(path: Path) -> str:
    file = path / FILE_NAME if (path / FILE_NAME).is_file() else path
    try:
        with zipfile.ZipFile(file) as archive:
            members = set(archive.namelist())
    except (OSError, zipfile.BadZipFile) as error:
        raise FileLoadError(
            f"{path} is not a program: {error}.",
            hint="serve an .onnx file, a file of model.compileAndExport, or a folder of "
            "export_for_ipu_serving",
        ) from None
    return "keras" if _KERAS_MEMBER in members else "poptorch"


# -- ONNX ------------------------------------------------------------------------------------------


def program_of_onnx(
    path: Path, *, name: str, batch_size: int | None = None, on_tiles: bool = False
) -> ServedProgram:
    """An ONNX model whose first sizes, where they are open, become the batch."""
    import torch

    from tremula.frontends.onnx import import_model
    from tremula.frontends.onnx.compiled import compile_model
    from tremula.frontends.onnx.element_types import arrays_of, element_type, tensor_of

    imported = import_model(path)
    arrays = {}
    for value in imported.inputs:
        shape = _batched(value.name, value.shape, batch_size)
        arrays[value.name] = np.zeros(shape, element_type(value.type).array)
    inputs = {key: tensor_of(array) for key, array in arrays.items()}
    with torch.no_grad():
        compiled = compile_model(imported, inputs, on_tiles=on_tiles)
    kinds = [value.type for value in imported.outputs]

    def run(batch: list[np.ndarray]) -> list[np.ndarray]:
        with torch.no_grad():
            result = compiled(*(torch.from_numpy(array) for array in batch))
        return [np.asarray(arrays_of(v, kind)) for v, kind in zip(result, kinds, strict=True)]

    return program_from_call(
        run,
        [arrays[key] for key in compiled.input_names],
        name=name,
        platform="tremula_onnx",
        input_names=compiled.input_names,
        output_names=[value.name for value in imported.outputs],
    )


def _batched(name: str, shape: Any, batch_size: int | None) -> tuple[int, ...]:  # noqa: ANN401
    """The shape of an input with its open first size filled in."""
    sizes = list(shape or ())
    if not sizes:
        raise InvalidOption(
            f"the input {name!r} of the model has no dimensions: it has no batch.",
            hint="export the model with the batch as the first dimension of each input",
        )
    open_sizes = [size for size in sizes[1:] if not isinstance(size, int)]
    if open_sizes:
        raise InvalidOption(
            f"the input {name!r} has the shape {sizes}: sizes other than the batch are open.",
            hint="export the model with fixed sizes: compiled programs have fixed shapes",
        )
    if isinstance(sizes[0], int) and batch_size not in {None, sizes[0]}:
        raise InvalidOption(
            f"the model is made for batches of {sizes[0]}, not {batch_size}.",
            hint="leave --batch out, or export the model with an open first size",
        )
    return (sizes[0] if isinstance(sizes[0], int) else batch_size or 1, *sizes[1:])


# -- PopTorch --------------------------------------------------------------------------------------


def program_of_poptorch(
    model: "PoplarExecutor",
    inputs: Mapping[str, np.ndarray],
    *,
    name: str,
    output_names: tuple[str, ...] = (),
) -> ServedProgram:
    """A PopTorch inference model; the arrays, by the names of its arguments, are a whole batch."""
    if model.is_training:
        raise InvalidOption(
            f"{name!r} is a model for training.", hint="serve poptorch.inferenceModel(model)"
        )
    import torch

    names = list(inputs)

    def run(batch: list[np.ndarray]) -> list[np.ndarray]:
        result = model(**{key: torch.from_numpy(a) for key, a in zip(names, batch, strict=True)})
        return _flat_arrays(result)

    return program_from_call(
        run,
        [np.asarray(inputs[key]) for key in names],
        name=name,
        platform="tremula_poptorch",
        input_names=names,
        output_names=output_names,
    )


def _flat_arrays(value: object) -> list[np.ndarray]:
    from torch.utils import _pytree as pytree

    return [leaf.numpy() for leaf in pytree.tree_leaves(value)]


def _poptorch_file(path: Path, name: str) -> ServedProgram:
    import inspect

    from tremula.frontends.poptorch.executor import saving
    from tremula.frontends.poptorch.executor.entry import load

    saved = saving.load(path)
    model = load(str(path))
    signature = inspect.signature(saved.model.forward)
    arguments = signature.bind(*saved.args, **saved.kwargs).arguments
    others = [key for key, value in arguments.items() if not hasattr(value, "numpy")]
    if others:
        raise InvalidOption(
            f"{path} was compiled for arguments that are not tensors: {', '.join(others)}.",
            hint="give those their defaults in forward()",
        )
    arrays = {key: value.numpy() for key, value in arguments.items()}
    return program_of_poptorch(model, arrays, name=name)


# -- Keras -----------------------------------------------------------------------------------------


def _keras(path: Path, name: str, *, on_tiles: bool) -> ServedProgram:
    from tremula.frontends.keras.served import load_served

    model = load_served(path)
    about = model.about
    call: Run = _listed(model.run_on_tiles if on_tiles else model)
    arrays = [np.zeros(f.shape, np.dtype(f.dtype)) for f in about.inputs]
    return program_from_call(
        call,
        arrays,
        name=name,
        platform="tremula_keras",
        input_names=[fact.name for fact in about.inputs],
        output_names=[fact.name for fact in about.outputs],
    )


def _listed(call: Any) -> Run:  # noqa: ANN401 - returns an array, or a tuple of them
    def run(batch: list[np.ndarray]) -> list[np.ndarray]:
        result = call(*batch)
        return list(result) if isinstance(result, tuple) else [result]

    return run
