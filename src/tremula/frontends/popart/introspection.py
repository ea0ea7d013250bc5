"""What PopART says about itself: versions, supported operators, types of arrays."""

from dataclasses import dataclass

import numpy as np
from onnx import defs

from tremula.base.version import VERSION
from tremula.frontends.onnx.element_types import NUMPY_TYPES
from tremula.frontends.onnx.table import Operator, all_operators
from tremula.frontends.popart.enums import SyncPattern
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.tensor_info import TensorInfo

defaultAiOnnxOpset = 10
defaultAiOnnxMlOpset = 1
defaultAiGraphcoreOpset = 1


@dataclass(frozen=True)
class OperatorIdentifier:
    """An operator: its domain, its type and the version that defines it."""

    domain: str
    type: str
    version: int


def getTensorInfo(array: np.ndarray) -> TensorInfo:
    """Type and shape of an array."""
    return TensorInfo(np.asarray(array))


@dataclass(frozen=True)
class OpDefinition:
    """The inputs, outputs and attributes of an operator."""

    @dataclass(frozen=True)
    class Tensor:
        """An input or an output."""

        name: str
        supportedTensors: tuple[str, ...]
        constant: bool = False  # its value must be known when a model is compiled

    @dataclass(frozen=True)
    class Attribute:
        """An attribute."""

        supportedValuesRegex: str = ".*"

    inputs: list[Tensor]
    outputs: list[Tensor]
    attributes: dict[str, Attribute]


def getSupportedOperations(includeInternal: bool = False) -> list[OperatorIdentifier]:
    """The operators that can be imported; with `includeInternal`, those sessions add, too."""
    return list(getSupportedOperationsDefinition(includeInternal))


def getSupportedOperationsDefinition(
    includeInternal: bool = False,
) -> dict[OperatorIdentifier, OpDefinition]:
    """The inputs, outputs and attributes of each operator."""
    result = {
        OperatorIdentifier(entry.domain or "ai.onnx", entry.name, entry.since): _definition(entry)
        for entry in all_operators()
    }
    if includeInternal:
        nothing = OpDefinition([], [], {})
        result |= {OperatorIdentifier("tremula", name, 1): nothing for name in _internal_names()}
    return result


def _definition(entry: Operator) -> OpDefinition:
    types = tuple(NUMPY_TYPES)
    inputs = [OpDefinition.Tensor(n.strip("_"), types, n in entry.static) for n in entry.operands]
    n_outputs = min(entry.n_outputs[1], 16)
    outputs = [OpDefinition.Tensor(f"output {i}", types) for i in range(n_outputs)]
    return OpDefinition(
        inputs, outputs, {name: OpDefinition.Attribute() for name in entry.attributes}
    )


def _internal_names() -> list[str]:
    """Operations of compiled steps that no model names."""
    import torch  # lazy: slow to import

    from tremula.ir.ops import composite, markers  # noqa: F401 - register tremula::*

    prefix = "tremula::"
    names = (name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names())
    return sorted({name.removeprefix(prefix) for name in names if name.startswith(prefix)})


def getUnsupportedOperations(opsetVersion: int) -> list[OperatorIdentifier]:
    """The operators of a version of ai.onnx that cannot be imported and are not functions."""
    known = {entry.name for entry in all_operators() if not entry.domain}
    schemas = [s for s in defs.get_all_schemas_with_history() if s.domain == ""]
    newest = {s.name for s in schemas if s.since_version <= opsetVersion and not s.deprecated}
    missing = sorted(newest - known)
    result = [defs.get_schema(name, opsetVersion) for name in missing]
    return [
        OperatorIdentifier("ai.onnx", s.name, s.since_version)
        for s in result
        if not getattr(s, "has_function", False)
    ]


def syncPatternFromString(text: str) -> SyncPattern:
    """A pattern of synchronisation by its name: "full", "singlePipeline" or "replicaAndLadder"."""
    for pattern in SyncPattern:
        if pattern.name.lower() == text.lower():
            return pattern
    raise popart_exception(f"Unknown sync pattern: {text}")


def syncPatternToString(pattern: SyncPattern) -> str:
    """The name of a pattern of synchronisation."""
    return pattern.name[0].lower() + pattern.name[1:]


def versionString() -> str:
    """The version of Tremula."""
    return VERSION


def versionNumber() -> tuple[int, ...]:
    """The version as numbers."""
    return tuple(int(part) for part in VERSION.split(".")[:3] if part.isdigit())


def packageHash() -> str:
    """The version, since builds have no hash."""
    return VERSION
