"""popart: ONNX graphs built, run, trained and costed. Names only; the code is in tremula.frontends.

Enumerations and the log are here at once. All other names load when they are first used: graphs and
sessions need the package onnx (`pip install 'tremula[onnx]'`), options and devices do not.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from tremula.base.errors import suggest as _suggest
from tremula.base.libraries.fallbacks import stand_in_for_libraries as _stand_in_for_libraries
from tremula.base.requirements import require as _require
from tremula.frontends.popart import enums as _enums
from tremula.frontends.popart.enums import *  # noqa: F403 - all its names are public
from tremula.frontends.popart.logging import Logger, getLogger

if _TYPE_CHECKING:
    from tremula.frontends.popart.builder.builder import Builder as Builder
    from tremula.frontends.popart.data_flow import AnchorReturnType as AnchorReturnType
    from tremula.frontends.popart.data_flow import DataFlow as DataFlow
    from tremula.frontends.popart.data_flow import InputSettings as InputSettings
    from tremula.frontends.popart.data_flow import PyStepIO as PyStepIO
    from tremula.frontends.popart.data_flow import PyStepIOCallback as PyStepIOCallback
    from tremula.frontends.popart.data_flow import PyWeightsIO as PyWeightsIO
    from tremula.frontends.popart.devices import DeviceInfo as DeviceInfo
    from tremula.frontends.popart.devices import DeviceManager as DeviceManager
    from tremula.frontends.popart.groups import CommGroup as CommGroup
    from tremula.frontends.popart.groups import VariableSettings as VariableSettings
    from tremula.frontends.popart.locations import TensorLocation as TensorLocation
    from tremula.frontends.popart.locations import (
        TensorLocationSettings as TensorLocationSettings,
    )
    from tremula.frontends.popart.optimisers.optimisers import SGD as SGD
    from tremula.frontends.popart.optimisers.optimisers import Adam as Adam
    from tremula.frontends.popart.optimisers.optimisers import Adaptive as Adaptive
    from tremula.frontends.popart.optimisers.optimisers import ConstSGD as ConstSGD
    from tremula.frontends.popart.optimisers.optimisers import Optimizer as Optimizer
    from tremula.frontends.popart.options.options import SessionOptions as SessionOptions
    from tremula.frontends.popart.options.patterns import Patterns as Patterns
    from tremula.frontends.popart.sessions.session import InferenceSession as InferenceSession
    from tremula.frontends.popart.sessions.session import TrainingSession as TrainingSession
    from tremula.frontends.popart.tensor_info import DebugContext as DebugContext
    from tremula.frontends.popart.tensor_info import InputShapeInfo as InputShapeInfo
    from tremula.frontends.popart.tensor_info import TensorInfo as TensorInfo
    from tremula.frontends.popart.transformer import GraphTransformer as GraphTransformer

_stand_in_for_libraries()  # of custom operations, which scripts load with ctypes
_API = "tremula.frontends.popart."
# Where each other name is, by module.
_LATER = {
    "builder.builder": "Builder",
    "data_flow": """
        AnchorReturnType DataFlow IStepIO IWeightsIO InputSettings PyStepIO PyStepIOCallback
        PyWeightsIO
    """,
    "devices": "DeviceInfo DeviceManager",
    "exceptions": """
        OutOfMemoryError OutOfMemoryException poplar_application_runtime_error poplar_exception
        poplar_recoverable_runtime_error poplar_runtime_error poplar_system_runtime_error
        poplar_unknown_runtime_error poplar_unrecoverable_runtime_error poplibs_exception
        popart_exception popart_internal_exception popart_runtime_error
        _throw_application_runtime_error _throw_poplar_error _throw_poplar_runtime_error
        _throw_poplibs_error _throw_popart_error _throw_popart_internal_error
        _throw_popart_runtime_error _throw_recoverable_runtime_error _throw_system_runtime_error
        _throw_unknown_runtime_error _throw_unrecoverable_runtime_error
    """,
    "introspection": """
        OpDefinition OperatorIdentifier defaultAiGraphcoreOpset defaultAiOnnxMlOpset
        defaultAiOnnxOpset getSupportedOperations getSupportedOperationsDefinition getTensorInfo
        getUnsupportedOperations packageHash
        syncPatternFromString syncPatternToString versionNumber versionString
    """,
    "groups": "CommGroup VariableSettings",
    "locations": "TensorLocation TensorLocationSettings",
    "names": """
        reservedAccl1Prefix reservedAccl2Prefix reservedAccl3Prefix reservedAcclFinalOutPrefix
        reservedAcclPrefix reservedAcclToReducePrefix reservedAcclToUpdatePrefix
        reservedAccumPrefix reservedAdamUpdaterPrefix reservedAutomaticLossScalePrefix
        reservedDefaultAdamBeta1Prefix reservedDefaultAdamBeta2Prefix reservedDefaultAdamEpsPrefix
        reservedDefaultDampeningScaleFactor1Prefix reservedDefaultLearningRatePrefix
        reservedDefaultLossScalingPrefix reservedDefaultMaxWeightNormPrefix
        reservedDefaultScaledLearningRate0Prefix reservedDefaultScaledLearningRate1Prefix
        reservedDefaultScaledMomentum1Prefix reservedDefaultScaledWeightDecay1Prefix
        reservedDefaultStepPrefix reservedDefaultWeightDecayPrefix
        reservedDefaultWeightDecayScaleFactor0Prefix reservedFinalReducedGradPrefix
        reservedGradientPrefix
        reservedLambR1SqPrefix reservedLambR2SqPrefix reservedLossScalingPrefix
        reservedRandomSeedPrefix reservedRemoteArgPrefix reservedRestoredPrefix
        reservedSeedModifierPrefix reservedSpecificAdamBeta1Prefix reservedSpecificAdamBeta2Prefix
        reservedSpecificAdamEpsPrefix reservedSpecificDampeningScaleFactor1Prefix
        reservedSpecificLearningRatePrefix reservedSpecificLossScalingPrefix
        reservedSpecificMaxWeightNormPrefix reservedSpecificScaledLearningRate0Prefix
        reservedSpecificScaledLearningRate1Prefix reservedSpecificScaledMomentum1Prefix
        reservedSpecificScaledWeightDecay1Prefix reservedSpecificStepPrefix
        reservedSpecificWeightDecayPrefix reservedSpecificWeightDecayScaleFactor0Prefix
        reservedStashedPrefix reservedStepPrefix reservedUpdatedVarPrefix
    """,
    "optimisers.optimisers": "Adam Adaptive ConstSGD Optimizer SGD",
    "optimisers.values": "ClipNormSettings OptimizerValue OptimizerValueMap",
    "options.groups": """
        AccumulateOuterFragmentSettings AutodiffSettings AutomaticLossScalingSettings
        BatchSerializationSettings ExecutionPhaseSettings ReplicatedCollectivesSettings
    """,
    "options.options": "SessionOptions",
    "options.patterns": "Patterns",
    "sessions.session": "InferenceSession TrainingSession",
    "tensor_info": "DebugContext InputShapeInfo TensorInfo",
    "transformer": "GraphTransformer",
}
_FILES = ("builder", "session", "tensorinfo")  # modules of the original that scripts name
_MODULE_OF = {name: module for module, names in _LATER.items() for name in names.split()}


__all__ = [*_enums.__all__, "Logger", "getLogger", *_MODULE_OF]  # noqa: PLE0604 - a table's names


def __getattr__(name: str) -> object:
    if name in _FILES:
        return _import_module(f"{__name__}.{name}")
    if name in _MODULE_OF:
        try:
            return getattr(_import_module(_API + _MODULE_OF[name]), name)
        except ModuleNotFoundError:
            _require("PopART", "onnx")
            raise
    advice = "" if name.startswith("_") else f": {_suggest(name, __all__)}"
    raise AttributeError(f"module 'popart' has no attribute {name!r}{advice}")


def __dir__() -> list[str]:
    return __all__
