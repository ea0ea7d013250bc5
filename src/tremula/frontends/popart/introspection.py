"""What PopART says about itself: versions, supported operators, types of arrays."""

from dataclasses import dataclass

import numpy as np
from onnx import defs

from tremula.base.version import VERSION
from tremula.frontends.onnx.table import all_operators
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


def getSupportedOperations(includeInternal: bool = False) -> list[OperatorIdentifier]:
    """The operators that can be imported."""
    del includeInternal
    return [
        OperatorIdentifier(entry.domain or "ai.onnx", entry.name, entry.since)
        for entry in all_operators()
    ]


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
