"""A whole step as calls of compiled functions: stored, a later process runs no pass over the step.

Values are numbered: arguments, then masks that are drawn first, then constants, then what the calls
return, in their order.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from tremula.ir.host.compiled.functions import CompiledFunction
from tremula.ir.host.compiled.keys import digest
from tremula.ir.host.compiled.store import (
    binary_path,
    forget_record,
    read_record,
    stored_function,
    write_record,
)
from tremula.ir.host.transfer.outputs import OutputHook, last_maker
from tremula.ir.step import bytes_of

_MAX_CONSTANT_BYTES = 16 * 2**20  # of all constants of a step
# Operations whose kernels or bodies the passes over a step register: without them, unknown.
_MADE_BY_PASSES = "ops.tremula."


@dataclass(frozen=True)
class FunctionCall:
    """A call of a function: the numbers of values."""

    function: str  # its key
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dead: tuple[int, ...] = ()  # values that no later call reads


@dataclass(frozen=True)
class Mask:
    """Ones with some probability, else zeros."""

    shape: tuple[int, ...]
    dtype: str
    probability: float


@dataclass(frozen=True)
class StoredConstant:
    """A tensor that the passes computed."""

    shape: tuple[int, ...]
    dtype: str
    values: str  # base64


@dataclass(frozen=True)
class ProgramRecord:
    """The micro-batch part of a step."""

    n_arguments: int  # without masks
    masks: tuple[Mask, ...]
    constants: tuple[StoredConstant, ...]
    calls: tuple[FunctionCall, ...]
    results: tuple[int, ...]


def constant_of(value: Tensor) -> StoredConstant:
    values = base64.b64encode(bytes_of(value)).decode()
    return StoredConstant(tuple(value.shape), _name(value.dtype), values)


def mask_of(like: Tensor, probability: float) -> Mask:
    return Mask(tuple(like.shape), _name(like.dtype), probability)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def fits_as_constants(values: Sequence[Tensor]) -> bool:
    return sum(value.nbytes for value in values) <= _MAX_CONSTANT_BYTES


class StoredProgram:
    """A record made callable; functions that are called several times are loaded once."""

    def __init__(self, record: ProgramRecord, device: torch.device):
        self._record = record
        self._device = device
        keys = {call.function for call in record.calls}
        self._functions = {key: _function(key, device) for key in keys}
        self._constants = [_tensor(constant, device) for constant in record.constants]
        self._hook: OutputHook | None = None
        self._outputs: list[int] = []
        self._ends_outputs = -1

    def give_outputs(self, hook: OutputHook, positions: Sequence[int]) -> None:
        """Call the hook in each run, as soon as the results at these positions are computed."""
        self._hook = hook
        self._outputs = [self._record.results[position] for position in positions]
        self._ends_outputs = last_maker([c.outputs for c in self._record.calls], self._outputs)

    def __call__(self, *args: Tensor) -> list[Tensor]:
        with torch.no_grad():
            return self._run([*args, *self._drawn(), *self._constants])

    def _run(self, arguments: list[Tensor]) -> list[Tensor]:
        values = dict(enumerate(arguments))
        for number, call in enumerate(self._record.calls):
            results = self._functions[call.function]([values[i] for i in call.inputs])
            values.update(zip(call.outputs, results, strict=True))
            if number == self._ends_outputs and self._hook is not None:
                self._hook(*(values[i] for i in self._outputs))
            for dead in call.dead:
                del values[dead]
        return [values[i] for i in self._record.results]

    def _drawn(self) -> list[Tensor]:
        result = []
        for mask in self._record.masks:
            dtype = getattr(torch, mask.dtype)
            like = torch.empty(mask.shape, dtype=dtype, device=self._device)
            result.append(torch.ops.aten.bernoulli.p(like, mask.probability))
        return result


def _function(key: str, device: torch.device) -> CompiledFunction:
    record = stored_function(key)
    if record is None:
        raise ValueError("one of its functions is not stored any more")
    if _MADE_BY_PASSES in record.text:
        raise ValueError("one of its functions needs the passes over the step")
    return CompiledFunction(record, binary_path, device)


def _tensor(constant: StoredConstant, device: torch.device) -> Tensor:
    dtype = getattr(torch, constant.dtype)
    values = bytearray(base64.b64decode(constant.values))
    flat = torch.frombuffer(values, dtype=dtype) if values else torch.empty(0, dtype=dtype)
    return flat.reshape(constant.shape).to(device)


# -- on disk ---------------------------------------------------------------------------------------


def store_program(key: str, record: ProgramRecord) -> None:
    """Store a program whose functions are all stored, and need no pass over the step."""
    functions = [stored_function(key) for key in {call.function for call in record.calls}]
    if all(f is not None and _MADE_BY_PASSES not in f.text for f in functions):
        write_record(key, asdict(record))


def start_key(tensors: Iterable[tuple[str, Sequence[int], torch.dtype]]) -> str:
    """What is known of a step before it is captured: its weights and inputs."""
    about = (f"{name} {tuple(shape)} {dtype}" for name, shape, dtype in tensors)
    return digest(["start", *about])


def expect_stored(key: str) -> None:
    """Note that a step with these weights and inputs is stored: no compiler is needed early."""
    if not is_expected(key):
        write_record(key, {"is_stored": True})


def is_expected(key: str) -> bool:
    return read_record(key) is not None


def stored_program(key: str, device: torch.device) -> StoredProgram | None:
    """The program of a key, ready to be called; None if it is not stored or does not load."""
    content = read_record(key)
    if content is None:
        return None
    try:
        return StoredProgram(_from_json(content), device)
    except Exception as error:  # noqa: BLE001 - whatever it is, the step is compiled again
        forget_record(key, str(error))
        return None


def _from_json(content: Mapping) -> ProgramRecord:
    return ProgramRecord(
        content["n_arguments"],
        tuple(Mask(tuple(m["shape"]), m["dtype"], m["probability"]) for m in content["masks"]),
        tuple(
            StoredConstant(tuple(c["shape"]), c["dtype"], c["values"]) for c in content["constants"]
        ),
        tuple(
            FunctionCall(c["function"], tuple(c["inputs"]), tuple(c["outputs"]), tuple(c["dead"]))
            for c in content["calls"]
        ),
        tuple(content["results"]),
    )
