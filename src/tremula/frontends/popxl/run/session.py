"""Sessions: a program on a device, with its variables, run by run."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from tremula.compiler.report.report import ProgramReport
from tremula.frontends.popart.devices import DeviceInfo, DeviceManager
from tremula.frontends.popart.enums import DeviceType
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.logging import getLogger
from tremula.frontends.popart.sessions.settings import cache_folder
from tremula.frontends.popart.step_settings import tile_settings
from tremula.frontends.popxl.core.ir import Ir
from tremula.frontends.popxl.core.streams import DeviceToHostStream, HostToDeviceStream, Stream
from tremula.frontends.popxl.core.tensor import Constant, Tensor, Variable
from tremula.frontends.popxl.dot import is_active, write_dot
from tremula.frontends.popxl.dtypes import dtype, to_array
from tremula.frontends.popxl.run.compiled import CompiledProgram, obstacle
from tremula.frontends.popxl.run.counts import n_operations
from tremula.frontends.popxl.run.interpreter import Interpreter
from tremula.frontends.popxl.run.memory import DeviceMemory
from tremula.frontends.popxl.run.scales import check_scales, known_scales
from tremula.frontends.popxl.run.streams import StreamBuffers, buffer_shape, full_shape
from tremula.frontends.shared.program import StepProgram
from tremula.frontends.shared.wanted_report import leave_report
from tremula.ir.run.progress import ProgressBar
from tremula.ir.run.tile_program import TileSettings
from tremula.ir.settings import host_settings

DeviceName = Literal["cpu", "ipu_model", "ipu_hw"]
Inputs = Mapping[HostToDeviceStream, object]
Outputs = Mapping[DeviceToHostStream, np.ndarray]
_DEVICES = ("cpu", "ipu_model", "ipu_hw")
_MODELS = {DeviceType.IpuModel, DeviceType.Sim}  # they compute every vertex
# On the host the first run is interpreted; a program that runs again is compiled, the later the
# more operations it has: compiling one takes as long as interpreting it some times.
COMPILED_PER_RUN = 500
MAX_COMPILED_OPERATIONS = 4000
_PREFETCH = {"defaultPrefetchBufferingDepth", "defaultBufferingDepth"}


class Session:
    """A program on a device: `with popxl.Session(ir, "cpu") as session: session.run(inputs)`."""

    def __init__(
        self,
        ir: Ir,
        device_desc: DeviceName | DeviceInfo = "cpu",
        weights_to_host_on_exit: bool = True,
    ):
        if not isinstance(ir, Ir):
            raise TypeError(f"A Session runs a popxl.Ir, got {type(ir).__name__}")
        self._ir, self._weights_to_host_on_exit = ir, weights_to_host_on_exit
        self._device = _device(ir, device_desc)
        self._expected_type: DeviceType | None = None  # of a device that replaced the first
        ir._is_frozen = True
        if is_active(ir, "Final"):
            write_dot(ir, "Final")
        self._memory = DeviceMemory(ir)
        self._interpreter = Interpreter(self._memory)
        self._compiled: CompiledProgram | None = None
        self._on_tiles: CompiledProgram | None = None  # what a report is about
        self._n_runs = 0
        self._obstacle = obstacle(ir)
        self._n_operations = n_operations(ir)  # of a run, on one replica
        self._variables = ir.main_graph.variables  # the Ir is frozen now
        self._scales = known_scales(ir)
        self._is_attached = False
        self._depth: list[bool] = []  # of contexts: whether each attached
        self._memory.write_all()
        self._streams_in = sorted(ir.get_all_h2d_streams(), key=lambda s: s.tensor_id)
        self._streams_out = sorted(ir.get_all_d2h_streams(), key=lambda s: s.tensor_id)

    @property
    def ir(self) -> Ir:
        return self._ir

    @property
    def device(self) -> DeviceInfo:
        """What the program runs on; another one may be set before the first run."""
        return self._device

    @device.setter
    def device(self, device: DeviceInfo) -> None:
        self._device = _device(self._ir, device)
        self._compiled = self._on_tiles = None

    def _set_device(self, device: DeviceInfo) -> None:
        """Run on another device of the kind that the session was made for."""
        self._expected_type = self._device.type
        self._device = device
        self._compiled = self._on_tiles = None

    def _check_device(self) -> None:
        """Raise if the device is smaller than the program, or not what it was made for."""
        _check_size(self._ir, self._device)
        if self._expected_type is not None and self._device.type is not self._expected_type:
            raise RuntimeError(
                f"The session was made for a device of type {self._expected_type.name}, but was"
                f" given {self._device!r}"
            )

    @property
    def is_attached(self) -> bool:
        """Whether the session has its device."""
        return self._is_attached

    def __enter__(self) -> "Session":
        attaches = not self._is_attached
        if attaches:
            self._check_device()
            was_detached = not self._device.isAttached or not self._depth
            self._is_attached = True
            if was_detached:
                self.weights_from_host()
        self._depth.append(attaches)
        return self

    def __exit__(self, error: object, *_rest: object) -> None:
        if self._depth.pop():
            if self._weights_to_host_on_exit and error is None:
                self.weights_to_host()
            self._is_attached = False

    # -- running --

    def run(
        self, inputs: Inputs | None = None, downcast_inputs: bool = True
    ) -> dict[DeviceToHostStream, np.ndarray]:
        """Run the program once; the arrays of all streams of results."""
        outputs = self.create_host_outputs()
        self.run_with_outputs(inputs, outputs, downcast_inputs)
        return outputs

    def run_with_outputs(
        self,
        inputs: Inputs | None = None,
        outputs: Outputs | None = None,
        downcast_inputs: bool = True,
    ) -> None:
        """Run the program once, into arrays that `create_host_outputs` made.

        Inputs of 64 bits become 32, unless `downcast_inputs` is False.
        """
        self._check_attached()
        values, outputs = dict(inputs or {}), dict(outputs or {})
        self._check_streams(values, self._streams_in, "inputs")
        self._validate_run_outputs(outputs)
        arrays = {s: self._input_array(s, value, downcast_inputs) for s, value in values.items()}
        for variable in self._variables:
            variable.synced = False
        if self._ir.session_options.throwIfLog2ScaleTensorNotInRange:
            check_scales(self._scales)
        self._execute(arrays, outputs)
        if self._n_runs == 1:
            leave_report("popxl", self._ir.session_options.engineOptions, self.save_report)

    def _check_attached(self) -> None:
        if not self._is_attached:
            raise ValueError(
                "The session is not attached to its device: put the call inside `with session:`"
            )

    def _execute(self, inputs: dict, outputs: dict) -> None:
        """On tiles if the device is a model of chips; on the host, from the second run compiled."""
        self._n_runs += 1
        is_model = self._device.type in _MODELS
        if self._compiled is None and (is_model or self._is_worth_compiling()):
            self._check_compilable()
            self._compiled = self._compile(for_tiles=is_model, runs_on_tiles=is_model)
            if is_model:
                self._on_tiles = self._compiled
        if self._compiled is not None:
            self._compiled.run(inputs, outputs)
            return
        streams = StreamBuffers(self._ir, inputs, outputs)
        self._interpreter.run(self._ir.main_graph, streams)

    def _compile(self, *, for_tiles: bool, runs_on_tiles: bool) -> CompiledProgram:
        # A tile program shows its progress itself.
        with ProgressBar("Graph compilation", not for_tiles):
            return CompiledProgram(
                self._ir,
                self._memory,
                host_settings(),
                self._tile_settings(),
                for_tiles=for_tiles,
                runs_on_tiles=runs_on_tiles,
                device=self._device,
            )

    def _tile_settings(self) -> TileSettings:
        """The options of the Ir, as the compiler takes them."""
        options, device = self._ir.session_options, self._device
        settings = tile_settings(
            options,
            device.chip,
            device.n_tiles,
            cache_folder=cache_folder(options),
            warn=getLogger("session").warn,
            shows_progress=True,
        )
        if not _PREFETCH & options.changed().keys():  # loads are where the program has them
            settings = replace(settings, lowering=replace(settings.lowering, prefetch_depth=0))
        return settings

    def report(self) -> ProgramReport:
        """Cycles and memory of the program on tiles; it is compiled for them if it was not yet."""
        return self._tile_program().report()

    def save_report(self, folder: str | os.PathLike[str]) -> Path:
        """Write the report of the program on tiles for the analyser; the path of its file."""
        return self._tile_program().save_report(folder, "popxl")

    def _tile_program(self) -> StepProgram:
        if self._on_tiles is None:
            self._check_compilable()
            self._on_tiles = self._compile(for_tiles=True, runs_on_tiles=False)
        return self._on_tiles.program

    def _check_compilable(self) -> None:
        if self._obstacle:
            raise popart_exception(f"The program cannot run on tiles: {self._obstacle}")

    def _is_worth_compiling(self) -> bool:
        if self._obstacle or self._n_operations > MAX_COMPILED_OPERATIONS:
            return False
        return self._n_runs == 1 + max(1, self._n_operations // COMPILED_PER_RUN)

    def create_host_outputs(self) -> dict[DeviceToHostStream, np.ndarray]:
        """New arrays for the streams of results."""
        return {
            s: np.zeros(buffer_shape(self._ir, s), s.dtype.numpy_dtype) for s in self._streams_out
        }

    def expected_inputs(self) -> list[HostToDeviceStream]:
        """The streams that `run` needs arrays for."""
        return list(self._streams_in)

    def _check_streams(self, streams: dict, known: list, what: str) -> None:
        for stream in streams:
            if not isinstance(stream, HostToDeviceStream | DeviceToHostStream):
                raise TypeError(f"{what} of a run are given by stream, got {stream!r}")
        missing = [s.tensor_id for s in known if s not in streams]
        unexpected = [s.tensor_id for s in streams if s not in known]
        if missing or unexpected:
            raise ValueError(
                f"The {what} of a run do not match the program's streams:"
                f" missing {missing or 'none'}, unexpected {unexpected or 'none'}"
            )

    def _input_array(self, stream: HostToDeviceStream, value: object, downcast: bool) -> np.ndarray:
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
        array = np.asarray(array)
        if array.dtype != stream.dtype.numpy_dtype:
            result = to_array(array, downcast=downcast)
            if dtype.as_dtype(result.dtype) != stream.dtype:
                raise ValueError(
                    f"Stream {stream.tensor_id} has dtype {stream.dtype!r}, the array given for it"
                    f" {array.dtype}"
                )
            array = result
        self._check_array(stream, array)
        return array

    def _validate_run_inputs(self, inputs: Mapping[HostToDeviceStream, np.ndarray]) -> None:
        """Raise unless there is an array of the right shape for each stream of inputs."""
        self._check_streams(dict(inputs), self._streams_in, "inputs")
        for stream, array in inputs.items():
            self._check_array(stream, array)

    def _validate_run_outputs(self, outputs: Outputs) -> None:
        """Raise unless there is an array of the right shape for each stream of results."""
        self._check_streams(dict(outputs), self._streams_out, "outputs")
        for stream, array in outputs.items():
            self._check_array(stream, array)

    def _full_input_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a run's array for a stream of this shape: transfers, replicas, then it."""
        return full_shape(self._ir, tuple(shape))

    def _check_array(self, stream: Stream, array: np.ndarray) -> None:
        """Dimensions of size 1 may be left out, and the first may be larger than needed."""
        ir = self._ir
        transfers, replicas = ir.num_host_transfers, ir.instance_replication_factor
        expected = buffer_shape(ir, stream)
        shape = tuple(array.shape)
        options = {expected, (transfers, replicas, *stream.shape)}
        if replicas == 1:
            options.add((transfers, *stream.shape))
        if transfers == 1:
            options.add((replicas, *stream.shape))
        if shape in options:
            return
        if any(o[1:] == shape[1:] and o[:1] < shape[:1] and transfers > 1 for o in options if o):
            return
        raise ValueError(
            f"The array for stream {stream.tensor_id} must have shape {expected}:"
            f" {transfers} host transfers, {replicas} replicas, then {stream.shape}. Got {shape}"
        )

    # -- variables --

    def weights_from_host(self) -> None:
        """Write all variables to the device, as the host holds them."""
        self._check_attached()
        self._memory.write_all()
        for variable in self._variables:
            variable.synced = True

    def weights_to_host(self) -> None:
        """Read all variables from the device."""
        self._check_attached()
        for variable in self._variables:
            self._read(variable)

    def _read(self, variable: Variable) -> None:
        if variable.synced or variable.is_read_only:
            return
        if self._memory.was_touched(variable):
            result = self._memory.read(variable)
            if isinstance(variable.data, np.memmap):
                variable.data[...] = result
                variable.data.flush()
            else:
                variable.data = result
        variable.synced = True

    def get_tensor_data(self, tensor: Variable | Constant) -> np.ndarray:
        """The values of a variable or constant, read from the device if the host's are old."""
        if not isinstance(tensor, Constant | Variable):
            raise TypeError(
                f"{tensor!r} is not of type Constant or Variable: only these hold data on the host"
            )
        self._check_own(tensor)
        if isinstance(tensor, Constant):
            return tensor.data
        if not tensor.synced and self._is_attached:
            self._read(tensor)
        return self._memory.read(tensor) if tensor.is_read_only else tensor.data

    def get_tensors_data(self, tensors: Iterable[Variable | Constant]) -> dict[Tensor, np.ndarray]:
        """Values of several variables and constants."""
        return {t: self.get_tensor_data(t) for t in tensors}

    def write_variable_data(self, tensor: Variable, data: object) -> None:
        """New values of a variable, on the host and on the device."""
        if not isinstance(tensor, Variable):
            raise TypeError(
                f"Tensor {getattr(tensor, 'id', tensor)} is not of type Variable: only variables"
                " can be written"
            )
        self._check_own(tensor)
        array = _host_array(tensor, data)
        expected = tuple(tensor.shape_on_host)
        if array.shape == (1, *expected) and tensor.replica_grouping.num_groups == 1:
            array = array[0]
        if array.shape != expected:
            raise ValueError(f"{tensor.id} has shape {expected} on the host, got {array.shape}")
        if tensor.retrieval_mode == "all_replicas" and tensor.replica_grouping.group_size > 1:
            raise NotImplementedError(
                f"{tensor.id} is retrieved from all replicas, so it cannot be written: use"
                ' retrieval_mode="one_per_group"'
            )
        if tensor.is_read_only:
            raise ValueError(f"{tensor.id} is a read-only memory map: it cannot be written")
        tensor.data = array.copy()
        self._memory.write(tensor)
        tensor.synced = True

    def write_variables_data(self, tensors: Mapping[Variable, object]) -> None:
        """New values of several variables."""
        for tensor, data in tensors.items():
            self.write_variable_data(tensor, data)

    def _check_own(self, tensor: Tensor) -> None:
        if tensor.ir is not self._ir:
            raise ValueError(f"{tensor.id} belongs to another Ir than this session's")

    def __repr__(self) -> str:
        return f"Session[{self._ir!r}, {self._device!r}]"


def _host_array(tensor: Variable, data: object) -> np.ndarray:
    """Data in a variable's type: numbers and lists become it, of arrays only 64 bits do."""
    if isinstance(data, torch.Tensor):
        data = data.detach().cpu().numpy()
    if not isinstance(data, np.ndarray | np.generic):
        return np.asarray(data).astype(tensor.dtype.numpy_dtype)
    array = to_array(np.asarray(data), downcast=tensor.dtype.numpy_dtype.itemsize != 8)
    if array.dtype != tensor.dtype.numpy_dtype:
        raise TypeError(
            f"{tensor.id} has dtype {tensor.dtype!r}, the data given {array.dtype}: convert the"
            " array first"
        )
    return array


def _device(ir: Ir, desc: str | DeviceInfo) -> DeviceInfo:
    if isinstance(desc, DeviceInfo):
        _check_size(ir, desc)
        return desc
    return device_info(desc, n_ipus_of(ir))


def _check_size(ir: Ir, device: DeviceInfo) -> None:
    n_ipus = n_ipus_of(ir)
    if device.type in _MODELS and device.numIpus < n_ipus:
        raise popart_exception(
            f"The program needs {n_ipus} IPUs for {ir.instance_replication_factor} replicas,"
            f" but {device!r} has {device.numIpus}"
        )


def device_info(device_type: str, num_ipus: int = 1, use_popdist: bool = False) -> DeviceInfo:
    """A device by name: this computer, a model of chips, or chips."""
    del use_popdist  # a process gets the chips of its replicas in any case
    if device_type not in _DEVICES:
        raise ValueError(
            f"device_desc must be one of {_DEVICES} or a DeviceInfo, got {device_type!r}"
        )
    manager = DeviceManager()
    if device_type == "cpu":
        return manager.createCpuDevice()
    if device_type == "ipu_model":
        return manager.createIpuModelDevice({"numIPUs": num_ipus})
    return manager.acquireAvailableDevice(num_ipus)


def n_ipus_of(ir: Ir) -> int:
    """Chips that a program needs: a power of two, as machines are divided."""
    ipus = [op.ipu for op in ir.ops_of_all_graphs()]
    n = (max(ipus, default=0) + 1) * ir.instance_replication_factor
    return 1 << (n - 1).bit_length()
