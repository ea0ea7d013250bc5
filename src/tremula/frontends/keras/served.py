"""A model in a file that runs without Keras: its graph for this computer, its program for tiles.

The file is a zip archive with data only: `about.json` (inputs, outputs), `weights.npz`, `host.pt2`
(an exported program of PyTorch) and, if requested, `program.tremula` (an executable for tiles).
"""

import io
import json
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from tremula.base.errors import FileLoadError
from tremula.base.storage.atomic_file import atomic_file
from tremula.base.version import VERSION
from tremula.compiler.report.report import ProgramReport
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.shared.program import StepProgram
from tremula.frontends.shared.served_file import FILE_NAME
from tremula.ir.lowering.types import narrow, tile_shape, tile_type, widened
from tremula.ir.run.session import connect
from tremula.ir.run.tile_cache import StoredTileProgram, read_program, write_program
from tremula.ir.step import BUFFER, INPUT, OUTPUT, PARAMETER, CapturedStep
from tremula.poplar.target import IPUModel
from tremula.runtime.engine import Engine
from tremula.runtime.forecast import forecast_or_run

_ABOUT, _WEIGHTS, _HOST, _PROGRAM = "about.json", "weights.npz", "host.pt2", "program.tremula"


@dataclass(frozen=True)
class TensorFact:
    """A name with a shape, batch included, and a type of PyTorch."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def torch_type(self) -> torch.dtype:
        return getattr(torch, self.dtype)


@dataclass(frozen=True)
class About:
    """What a file says about its model."""

    name: str
    inputs: tuple[TensorFact, ...]
    outputs: tuple[TensorFact, ...]
    weights: tuple[tuple[str, int], ...]  # kind and index of each, in the order of the graph
    chip: str = "bow"
    n_tiles: int = 0
    n_chips: int = 1
    version: str = VERSION

    @property
    def batch_size(self) -> int:
        return self.inputs[0].shape[0]


# -- writing ---------------------------------------------------------------------------------------


class _Outputs(nn.Module):
    """The graph of a step; of its results, only the outputs."""

    def __init__(self, graph: nn.Module, places: Sequence[int]):
        super().__init__()
        self.graph, self.places = graph, list(places)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        result = self.graph(*tensors)
        return tuple(result[place] for place in self.places)


def write_served(
    path: Path, name: str, program: StepProgram, names: Sequence[str], *, has_tiles: bool
) -> None:
    """Write a step without an optimiser, with the weights it has now."""
    step, settings = program.step, program.settings
    tensors: dict[str, list[Tensor]] = dict(zip((PARAMETER, BUFFER), _held(program), strict=True))
    slots = [slot for slot in step.inputs if slot.kind in tensors]
    weights = [tensors[slot.kind][slot.index].detach().cpu() for slot in slots]
    facts = [
        (slot.kind, _fact(slot.name, node.meta["val"]))
        for slot, node in zip(step.inputs, step.placeholders(), strict=True)
    ]
    results = [(place, step.results()[place]) for place, _ in step.results_of_kind(OUTPUT)]
    about = About(
        name,
        tuple(fact for kind, fact in facts if kind == INPUT),
        tuple(_fact(n, node.meta["val"]) for n, (_, node) in zip(names, results, strict=True)),
        tuple((slot.kind, slot.index) for slot in slots),
        settings.tiles.chip,
        settings.tiles.n_tiles,
        program.tiles.schedule.n_chips,
    )
    with atomic_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_ABOUT, json.dumps(asdict(about)))
        archive.writestr(_WEIGHTS, _packed(weights))
        archive.writestr(_HOST, _exported(step, [place for place, _ in results], weights))
        if has_tiles:
            _write_program(archive, program.tiles.program_with_key())


def _held(program: StepProgram) -> tuple[list[Tensor], list[Tensor]]:
    parameters, buffers = program.session.read_weights()
    return parameters, buffers[0]


def _fact(name: str, value: Tensor) -> TensorFact:
    return TensorFact(name, tuple(int(n) for n in value.shape), str(value.dtype).split(".")[1])


def _packed(weights: Sequence[Tensor]) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, *(_plain(weight) for weight in weights))
    return stream.getvalue()


def _plain(weight: Tensor) -> np.ndarray:
    return weight.float().numpy() if weight.dtype is torch.bfloat16 else weight.numpy()


def _exported(step: CapturedStep, places: Sequence[int], weights: Sequence[Tensor]) -> bytes:
    values = [node.meta["val"] for node in step.placeholders()]
    inputs = [
        torch.zeros(tuple(value.shape), dtype=value.dtype)
        for slot, value in zip(step.inputs, values, strict=True)
        if slot.kind == INPUT
    ]
    module = _Outputs(_on_cpu(step.module()), places)
    with torch.no_grad():
        program = torch.export.export(module, (*weights, *inputs), strict=False)
    stream = io.BytesIO()
    torch.export.save(program, stream)
    return stream.getvalue()


def _on_cpu(module: GraphModule) -> GraphModule:
    """The graph with tensors that it makes on this computer's processor."""
    for node in module.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": torch.device("cpu")}
    module.recompile()
    return module


def _write_program(archive: zipfile.ZipFile, stored: StoredTileProgram) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _PROGRAM
        write_program(path, stored)
        archive.write(path, _PROGRAM)


# -- reading ---------------------------------------------------------------------------------------


@dataclass
class ServedModel:
    """A model from a file: call it with arrays of its batch size."""

    about: About
    weights: list[np.ndarray]
    _host: bytes = field(repr=False, default=b"")
    _stored: StoredTileProgram | None = field(repr=False, default=None)
    _module: nn.Module | None = field(repr=False, default=None)
    _engine: Engine | None = field(repr=False, default=None)

    def __call__(self, *arrays: npt.ArrayLike) -> np.ndarray | tuple[np.ndarray, ...]:
        """Outputs for inputs, on this computer: an array, or a tuple of them."""
        inputs = self._checked(arrays)
        if self._module is None:
            self._module = torch.export.load(io.BytesIO(self._host)).module()
        with torch.no_grad():
            result = self._module(*(torch.from_numpy(np.array(w)) for w in self.weights), *inputs)
        return _plural([tensor.numpy() for tensor in result])

    def run_on_tiles(self, *arrays: npt.ArrayLike) -> np.ndarray | tuple[np.ndarray, ...]:
        """Outputs for inputs, computed vertex by vertex: an array, or a tuple of them."""
        if self._engine is None:
            self._engine = self._new_engine()
        return self._run_on(self._engine, self._checked(arrays))

    def _run_on(
        self, engine: Engine, inputs: Sequence[Tensor]
    ) -> np.ndarray | tuple[np.ndarray, ...]:
        stored = self._program()
        for handle, value in zip(stored.inputs, inputs, strict=True):
            connect(engine, handle, narrow(value))
        result = []
        handles = {slot.index: handle for slot, handle in stored.outputs if slot.kind == OUTPUT}
        for index, fact in enumerate(self.about.outputs):
            like = torch.empty(fact.shape, dtype=fact.torch_type, device="meta")
            data = np.zeros(tile_shape(like), tile_type(fact.torch_type).dtype)
            connect(engine, handles[index], data)
            result.append((fact, data))
        engine.run()
        return _plural([widened(data, fact.torch_type).numpy() for fact, data in result])

    def report(self) -> ProgramReport:
        """Cycles and memory on tiles; where cycles depend on data, for inputs of zeros."""
        return forecast_or_run(self._program().executable, self._report_of_zeros)

    def _report_of_zeros(self) -> ProgramReport:
        engine = self._new_engine()
        self._run_on(engine, [torch.zeros(i.shape, dtype=i.torch_type) for i in self.about.inputs])
        return engine.report()

    def _program(self) -> StoredTileProgram:
        if self._stored is None:
            raise keras_error(
                f"the file of {self.about.name!r} has no program for tiles.",
                hint="export it with model.export_for_ipu_serving(folder, tiles=True)",
            )
        return self._stored

    def _new_engine(self) -> Engine:
        """The program on tiles with its weights, ready to run."""
        stored, about = self._program(), self.about
        device = IPUModel(about.chip, about.n_chips, about.n_tiles).create_device()
        engine = Engine(stored.executable, writes_reports=False).load(device)
        for (kind, index), value in zip(about.weights, self.weights, strict=True):
            handle = stored.state_handles[kind, index].handle
            engine.write_tensor(handle, narrow(torch.from_numpy(np.array(value))))
        return engine

    def _checked(self, arrays: Sequence[npt.ArrayLike]) -> list[Tensor]:
        facts = self.about.inputs
        if len(arrays) != len(facts):
            raise keras_error(f"{self.about.name!r} takes {len(facts)} inputs; got {len(arrays)}.")
        result = []
        for fact, array in zip(facts, arrays, strict=True):
            value = torch.as_tensor(np.asarray(array))
            if tuple(value.shape) != fact.shape:
                raise keras_error(
                    f"input {fact.name!r} of {self.about.name!r} has the shape {fact.shape}; got"
                    f" {tuple(value.shape)}.",
                    hint=f"the batch size is {self.about.batch_size}: fill up a smaller batch",
                )
            result.append(value.to(fact.torch_type))
        return result


def _plural(values: list[np.ndarray]) -> np.ndarray | tuple[np.ndarray, ...]:
    return values[0] if len(values) == 1 else tuple(values)


def load_served(path: str | Path) -> ServedModel:
    """A model that `export_for_ipu_serving` wrote: the file, or its folder."""
    path = Path(path)
    path = path / FILE_NAME if path.is_dir() else path
    try:
        with zipfile.ZipFile(path) as archive:
            about = _about(json.loads(archive.read(_ABOUT)))
            weights = np.load(io.BytesIO(archive.read(_WEIGHTS)), allow_pickle=False)
            arrays = [weights[f"arr_{i}"] for i in range(len(about.weights))]
            return ServedModel(about, arrays, archive.read(_HOST), _read_program(archive))
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
        raise FileLoadError(
            f"{path} is not a model for serving: {error}",
            hint="write one with model.export_for_ipu_serving(folder)",
        ) from error


def _about(plain: dict[str, Any]) -> About:
    if plain["version"] != VERSION:
        raise ValueError(f"it was written by version {plain['version']}; this is {VERSION}")
    inputs, outputs = (
        tuple(TensorFact(f["name"], tuple(f["shape"]), f["dtype"]) for f in plain[kind])
        for kind in ("inputs", "outputs")
    )
    weights = tuple((kind, index) for kind, index in plain["weights"])
    return About(**{**plain, "inputs": inputs, "outputs": outputs, "weights": weights})


def _read_program(archive: zipfile.ZipFile) -> StoredTileProgram | None:
    if _PROGRAM not in archive.namelist():
        return None
    with tempfile.TemporaryDirectory() as folder:
        return read_program(archive.extract(_PROGRAM, folder))
