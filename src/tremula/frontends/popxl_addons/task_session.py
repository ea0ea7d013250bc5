"""Sessions of a task: named inputs and outputs, checkpoints of variables and of the data loader."""

import json
import logging
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

import popxl
from tremula.base.storage.atomic_file import atomic_file, write_text
from tremula.frontends.popxl_addons.named.dot_tree import to_mapping
from tremula.frontends.popxl_addons.named.tensors import NamedTensorData, NamedTensors
from tremula.frontends.popxl_addons.streams import InputStreams, OutputStreams
from tremula.frontends.popxl_addons.utils import timer, wandb_module

Missing = Literal["none", "warn", "error"]
WANDB, MODEL = "wandb://", "model"
SESSION_FILE, LOADER_FILE = "session_info.json", "dataloader.bin"
logger = logging.getLogger("popxl_addons")


class DataLoader(Protocol):
    """A data loader that can write and read where it is."""

    def save(self, filename: str) -> object: ...

    def resume(self, filename: str) -> object: ...


class TaskSession(popxl.Session):
    """A session that knows its streams and its variables by name.

    A checkpoint is a folder: `model/` with a file for each variable, `session_info.json` with the
    number of steps and what `add_session_state_info` added, and the state of the data loader. The
    session deletes its oldest checkpoint when it writes more than `max_checkpoints`.
    """

    def __init__(
        self,
        inputs: InputStreams | Iterable[popxl.HostToDeviceStream],
        outputs: OutputStreams | Iterable[popxl.DeviceToHostStream],
        state: NamedTensors,
        max_checkpoints: int = 1,
        *args: Any,
        **kwargs: Any,
    ):
        with timer("PopXL compilation"):
            super().__init__(*args, **kwargs)
        is_named = isinstance(inputs, InputStreams)
        self.inputs = inputs if is_named else InputStreams.from_streams(inputs)
        is_named = isinstance(outputs, OutputStreams)
        self.outputs = outputs if is_named else OutputStreams.from_streams(outputs)
        self.state = state
        self.session_state: dict[str, Any] = {"steps": 0}
        self._dataloader: DataLoader | None = None
        self._checkpoints: deque[Path] = deque()
        self._max_checkpoints = max_checkpoints

    def run(self, inputs: Any = None, downcast_inputs: bool = True) -> dict:
        """Run the program once, and count the step."""
        self.session_state["steps"] += 1
        return super().run(inputs, downcast_inputs)

    @property
    def dataloader(self) -> DataLoader | None:
        """The source of the data; it is saved and resumed with checkpoints."""
        if self._dataloader is None:
            logger.warning("No dataloader is set: training cannot be resumed from checkpoints")
        return self._dataloader

    @dataloader.setter
    def dataloader(self, dl: DataLoader) -> None:
        if not hasattr(dl, "save") or not hasattr(dl, "resume"):
            raise ValueError(f"Dataloader must implement save and resume methods, got {dl!r}")
        self._dataloader = dl

    def add_session_state_info(self, info: Mapping[str, Any]) -> None:
        """Add what is needed to resume training, as JSON can hold it."""
        self.session_state.update(info)

    def get_named_tensors_data(self) -> NamedTensorData:
        """The values of all variables of the state, by name."""
        named: dict[str, Any] = dict(self.state.to_dict())
        values = self.get_tensors_data(named.values())
        return NamedTensorData.from_dict({name: values[t] for name, t in named.items()})

    def load_from_session(self, src: "TaskSession", report_missing: Missing = "none") -> None:
        """Take over variables of the same names from another session."""
        _report(src.state.keys_flat(), self.state.keys_flat(), report_missing)
        values = src.get_named_tensors_data()
        self.write_variables_data(to_mapping(self.state, values))  # type: ignore[arg-type]

    # -- Weights & Biases --

    def wandb_histogram(self, name: str, step: int, data: np.ndarray) -> None:
        """Log the distribution of finite numbers of an array, and how many are not finite."""
        wandb = wandb_module()
        values = np.asarray(data, np.float32).ravel()
        finite = np.isfinite(values)
        entry = {
            f"{name}:histogram": wandb.Histogram(values[finite]),
            f"{name}:not_finite": int((~finite).sum()),
        }
        wandb.log(entry, step=step)

    def wandb_variable_histograms(self, step: int = 0) -> None:
        """Log the distribution of each variable of the program."""
        for t, data in self.get_tensors_data(self.ir.main_graph.variables).items():
            self.wandb_histogram(t.name, step, data)

    # -- checkpoints --

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write a checkpoint to a folder, or as an artefact of W&B: `wandb://name`."""
        state = self.get_named_tensors_data().to_dict()
        with timer(f"Saving checkpoint {checkpoint_dir}"):
            if str(checkpoint_dir).startswith(WANDB):
                self._save_to_wandb(str(checkpoint_dir).removeprefix(WANDB), state)
                return
            folder = Path(checkpoint_dir).expanduser()
            self._drop_old_checkpoints(folder)
            self._save_to_folder(folder, state)

    def _save_to_wandb(self, name: str, state: Mapping[str, np.ndarray]) -> None:
        wandb = wandb_module()
        artifact = wandb.Artifact(name=name, type="checkpoints")
        with tempfile.TemporaryDirectory() as folder:
            self._save_to_folder(Path(folder), state)
            artifact.add_dir(folder)
        wandb.log_artifact(artifact)

    def _drop_old_checkpoints(self, coming: Path) -> None:
        if coming in self._checkpoints:
            self._checkpoints.remove(coming)
        while len(self._checkpoints) >= self._max_checkpoints:
            shutil.rmtree(self._checkpoints.popleft(), ignore_errors=True)
        self._checkpoints.append(coming)

    def _save_to_folder(self, folder: Path, state: Mapping[str, np.ndarray]) -> None:
        model = folder / MODEL
        model.mkdir(parents=True, exist_ok=True)
        for name, value in state.items():
            mapped = _memmap_of(value)
            if mapped is not None:
                mapped.flush()
                shutil.copyfile(str(mapped.filename), model / Path(str(mapped.filename)).name)
            else:
                arrays: dict[str, Any] = {name: value}
                with atomic_file(model / f"{name}.npz") as file:
                    np.savez(file, **arrays)
        if self._dataloader is not None:
            self._dataloader.save(str(folder / LOADER_FILE))
        write_text(folder / SESSION_FILE, json.dumps(self.session_state))

    def load_checkpoint(
        self, checkpoint_dir: str, report_missing: Missing = "warn", skip_memmap: bool = False
    ) -> None:
        """Read variables of the state that a checkpoint has, and the rest of it.

        Variables in mapped files are read from the checkpoint's copies unless `skip_memmap`.
        """
        with timer(f"Loading checkpoint {checkpoint_dir}"):
            folder = Path(str(checkpoint_dir).removeprefix(WANDB)).expanduser()
            if str(checkpoint_dir).startswith(WANDB):
                name = str(checkpoint_dir).removeprefix(WANDB)
                artifact = wandb_module().use_artifact(name, type="checkpoints")
                folder = Path(artifact.download())
            self._load_variables(folder / MODEL, report_missing, skip_memmap)
            if self._dataloader is not None:
                self._dataloader.resume(filename=str(folder / LOADER_FILE))
            loaded = json.loads((folder / SESSION_FILE).read_text())
            _report(loaded, self.session_state, report_missing)
            self.session_state = loaded

    def _load_variables(self, folder: Path, report_missing: Missing, skip_memmap: bool) -> None:
        variables: dict[str, Any] = dict(self.state.to_dict())
        mapped = {name: path for name, v in variables.items() if (path := _file_of(v)) is not None}
        saved = {path.stem for path in folder.glob("*.npz")}
        saved |= {name for name, path in mapped.items() if (folder / path.name).exists()}
        _report(saved, [n for n in variables if not (skip_memmap and n in mapped)], report_missing)
        data = {}
        for name in [n for n in variables if n in saved]:
            variable = variables[name]
            if name not in mapped:
                with np.load(folder / f"{name}.npz") as file:
                    data[variable] = file[name]
            elif not skip_memmap:
                file_copy = folder / mapped[name].name
                shape, dtype = variable.shape_on_host, variable.dtype.numpy_dtype
                data[variable] = np.fromfile(file_copy, dtype).reshape(shape)
        self.write_variables_data(data)


def _memmap_of(value: np.ndarray) -> np.memmap | None:
    """The mapped file that an array is, or is a view of."""
    if isinstance(value, np.memmap) and value.filename is not None:
        return value
    return value.base if isinstance(value.base, np.memmap) else None


def _file_of(variable: popxl.Variable) -> Path | None:
    data = variable.data
    return Path(str(data.filename)) if isinstance(data, np.memmap) else None


def _report(saved: Iterable[str], own: Iterable[str], how: Missing) -> None:
    extra, missing = sorted(set(saved) - set(own)), sorted(set(own) - set(saved))
    lines = []
    if extra:
        lines.append(f"not in the state: {', '.join(extra)}")
    if missing:
        lines.append(f"not in the checkpoint: {', '.join(missing)}")
    if not lines or how == "none":
        return
    text = "Keys are " + "; ".join(lines)
    if how == "error":
        raise ValueError(text)
    logger.warning(text)


def initialise_memmap_dir_from_checkpoint(checkpoint_dir: str, memmap_dir: str) -> None:
    """Copy the files of mapped variables of a checkpoint to a folder for `memmap_dir=`."""
    target = Path(memmap_dir)
    target.mkdir(parents=True, exist_ok=True)
    for file in (Path(checkpoint_dir) / MODEL).glob("*.npy"):
        shutil.copyfile(file, target / file.name)


def write_variables_pb(
    session: popxl.Session, weights: Mapping[popxl.Variable, np.ndarray]
) -> None:
    """Write values of variables, on the host and on the device."""
    session.write_variables_data(weights)
