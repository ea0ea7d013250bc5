"""Inputs of an ONNX model on the command line: files, or random numbers."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tremula.base.errors import FileLoadError, InvalidOption, suggest
from tremula.commands.progress import progress

if TYPE_CHECKING:  # PyTorch is loaded where it is used
    from tremula.frontends.onnx import ImportedModel, ValueInfo

MAX_RANDOM_BYTES = 4 << 30


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="an ONNX file")
    add_input_arguments(parser)


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input", action="append", default=[], metavar="[NAME=]FILE", dest="inputs",
        help="an input, as .npy; inputs that are not given are random",
    )  # fmt: skip
    parser.add_argument(
        "--shape", action="append", default=[], metavar="NAME=1,3,224,224", dest="shapes",
        help="the shape of an input whose sizes the model leaves open (each then is 1)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of random inputs (0)")


def load_inputs(args: argparse.Namespace) -> "tuple[ImportedModel, dict[str, Any], list[str]]":
    """The model, its inputs by name, and a line about each of them."""
    from tremula.frontends.onnx import import_model
    from tremula.frontends.onnx.compiled import static_inputs
    from tremula.frontends.onnx.element_types import tensor_of

    shapes = _shapes(args.shapes)
    with progress("reading"):
        imported = import_model(args.model)
    files = _files(args.inputs, imported)
    for name in shapes:
        _refuse_unknown(name, imported)
    rng = np.random.default_rng(args.seed)
    decisive = static_inputs(imported.module.graph)
    result, lines = {}, []
    for value in imported.inputs:
        if value.name in files:
            array, origin = _read(files[value.name]), str(files[value.name])
        elif value.name in decisive:
            raise InvalidOption(
                f"the input {value.name!r} decides shapes: it cannot be random.",
                hint=f"give it with --input {value.name}=FILE.npy",
            )
        else:
            array, origin = _random(value, shapes.get(value.name), rng), "random"
        result[value.name] = tensor_of(array)
        lines.append(f"{value.name}: {value.dtype}{list(array.shape)}, {origin}")
    return imported, result, lines


def _shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        parts = [part for part in sizes.split(",") if part]
        if not name or not all(part.isdigit() for part in parts):
            raise InvalidOption(
                f"cannot read --shape {text!r}.", hint="write --shape x=1,3,224,224"
            )
        shapes[name] = tuple(int(part) for part in parts)
    return shapes


def _files(texts: Sequence[str], imported: "ImportedModel") -> dict[str, Path]:
    """By name; files without one are the inputs in order."""
    names = [value.name for value in imported.inputs]
    files, unnamed = {}, []
    for text in texts:
        name, _, path = text.rpartition("=")
        if name:
            _refuse_unknown(name, imported)
            files[name] = Path(path)
        else:
            unnamed.append(Path(path))
    free = [name for name in names if name not in files]
    if len(unnamed) > len(free):
        raise InvalidOption(
            f"{len(texts)} inputs are given, but the model takes {len(names)}:"
            f" {', '.join(names) or 'none'}."
        )
    return {**files, **dict(zip(free, unnamed, strict=False))}


def _refuse_unknown(name: str, imported: "ImportedModel") -> None:
    names = [value.name for value in imported.inputs]
    if name not in names:
        raise InvalidOption(f"the model has no input {name!r}.", hint=suggest(name, names))


def _read(path: Path) -> np.ndarray:
    if not path.is_file():
        raise FileLoadError(f"there is no file {str(path)!r}.", hint="numpy.save writes one")
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise FileLoadError(f"{path} is not a NumPy array: {error}.") from None


def _random(
    value: "ValueInfo", given: tuple[int, ...] | None, rng: np.random.Generator
) -> np.ndarray:
    from tremula.frontends.onnx.element_types import element_type

    if value.kind != "tensor":
        raise InvalidOption(f"the input {value.name!r} is a {value.kind}, which is not supported.")
    own = [size if isinstance(size, int) else 1 for size in value.shape or ()]
    shape = given if given is not None else tuple(own)
    if np.prod(shape, dtype=float) * 8 > MAX_RANDOM_BYTES:
        raise InvalidOption(f"the input {value.name!r} has the shape {list(shape)}: too large.")
    kind = element_type(value.type)
    if kind.is_floating:
        return rng.standard_normal(shape).astype(kind.array)
    return rng.integers(0, 2, shape).astype(kind.array)
