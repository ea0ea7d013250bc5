"""PopTorch: run PyTorch models on an IPU, or on Tremula's model of one."""

from importlib import import_module
from inspect import isfunction as _isfunction
from typing import TYPE_CHECKING

from tremula.base import version as _version
from tremula.base.errors import suggest as _suggest
from tremula.base.libraries.fallbacks import stand_in_for_libraries as _stand_in_for_libraries
from tremula.base.names.argument_types import explains_arguments as _explains

if TYPE_CHECKING:
    from poptorch import optim as optim
    from tremula.frontends.poptorch.autocasting import autocast as autocast
    from tremula.frontends.poptorch.blocks import Attribute as Attribute
    from tremula.frontends.poptorch.blocks import BeginBlock as BeginBlock
    from tremula.frontends.poptorch.blocks import Block as Block
    from tremula.frontends.poptorch.blocks import BlockFunction as BlockFunction
    from tremula.frontends.poptorch.blocks import NameScope as NameScope
    from tremula.frontends.poptorch.blocks import module_repr as module_repr
    from tremula.frontends.poptorch.blocks import removeBlocks as removeBlocks
    from tremula.frontends.poptorch.data.dataloader import DataLoader as DataLoader
    from tremula.frontends.poptorch.enums import *  # noqa: F403 - all its names are ours
    from tremula.frontends.poptorch.exceptions import Error as Error
    from tremula.frontends.poptorch.exceptions import RecoverableError as RecoverableError
    from tremula.frontends.poptorch.exceptions import UnrecoverableError as UnrecoverableError
    from tremula.frontends.poptorch.exceptions import createPoptorchError as createPoptorchError
    from tremula.frontends.poptorch.executor.entry import PoplarExecutor as PoplarExecutor
    from tremula.frontends.poptorch.executor.entry import inferenceModel as inferenceModel
    from tremula.frontends.poptorch.executor.entry import trainingModel as trainingModel
    from tremula.frontends.poptorch.inputs.arguments import ICustomArgParser as ICustomArgParser
    from tremula.frontends.poptorch.inputs.arguments import (
        registerCustomArgParser as registerCustomArgParser,
    )
    from tremula.frontends.poptorch.logging import setLogLevel as setLogLevel
    from tremula.frontends.poptorch.ops.ops import *  # noqa: F403 - all its names are ours
    from tremula.frontends.poptorch.options.file import ConfigFileError as ConfigFileError
    from tremula.frontends.poptorch.options.groups import (
        TensorLocationSettings as TensorLocationSettings,
    )
    from tremula.frontends.poptorch.options.options import Options as Options
    from tremula.frontends.poptorch.options.strategies import (
        ParallelPhasedExecution as ParallelPhasedExecution,
    )
    from tremula.frontends.poptorch.options.strategies import Phase as Phase
    from tremula.frontends.poptorch.options.strategies import (
        PipelinedExecution as PipelinedExecution,
    )
    from tremula.frontends.poptorch.options.strategies import (
        SerialPhasedExecution as SerialPhasedExecution,
    )
    from tremula.frontends.poptorch.options.strategies import ShardedExecution as ShardedExecution
    from tremula.frontends.poptorch.options.strategies import Stage as Stage

import_module("tremula.frontends.poptorch")  # fails at once if PyTorch is not installed
_stand_in_for_libraries()  # of custom operations, which scripts load with ctypes

# The version of the API, and of Tremula.
__version__ = f"3.4.0-tremula{_version.VERSION}"

# Where names are found, by module of tremula.frontends.poptorch; loaded on first use.
_NAMES = {
    "inputs.arguments": "ICustomArgParser registerCustomArgParser",
    "data.async_data": "AsynchronousDataAccessor",
    "autocasting": "autocast",
    "blocks": """
        Attribute BeginBlock Block BlockFunction LegacyBeginBlockFn NameScope module_repr print
        removeBlocks
    """,
    "data.dataloader": "DataLoader",
    "enums": """
        AutoStage CommGroupType ConnectionType DataLoaderMode HalfFloatCastingBehavior Liveness
        MatMulSerializationMode MeanReductionStrategy MultiConvPlanType OutputMode OverlapMode
        ReductionType SharingStrategy SyncPattern VariableRetrievalMode
    """,
    "exceptions": "Error RecoverableError UnrecoverableError createPoptorchError",
    "executor.entry": """
        PoplarExecutor getIpuTensorId inferenceModel ipuHardwareIsAvailable ipuHardwareVersion
        isRunningOnIpu load poptorchAtExit registerPostCompileHook registerPreCompileHook
        trainingModel
    """,
    "logging": "setLogLevel",
    "ops.ops": """
        CPU MultiConv accessAttributes cond ctc_beam_search_decoder custom_op dynamic_slice
        dynamic_update for_loop fps identity_loss ipu_print_tensor nearest nop
        recomputationCheckpoint serializedMatMul set_available_memory set_overlap_for_input
        set_overlap_for_output
    """,
    "options.options": "Options",
    "options.file": "ConfigFileError",
    "options.strategies": """
        ParallelPhasedExecution Phase PipelinedExecution SerialPhasedExecution ShardedExecution
        Stage
    """,
    "options.groups": "TensorLocationSettings",
}
_HOME = {
    name: f"tremula.frontends.poptorch.{module}"
    for module, names in _NAMES.items()
    for name in names.split()
}
_SUBMODULES = """
    _args_parser _dataloader _impl _logging _poplar_executor _utils enums float8 ops optim options
    poptorch_core profiling sparse testing
""".split()


def __getattr__(name: str) -> object:
    if name == "__all__":  # from poptorch import *, which leaves Python's own print alone
        return sorted({*_HOME, *_SUBMODULES} - {"print"} - {n for n in _SUBMODULES if n[0] == "_"})
    if name in _SUBMODULES:
        return import_module(f"poptorch.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'poptorch' has no attribute {name!r}: {_advice(name)}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value = _explains(value) if _isfunction(value) else value
    return value


def _advice(name: str) -> str:
    if name == "AnchorMode":
        return "it is now called 'OutputMode'"
    if name.startswith("__"):  # tools probe modules for many of these
        return "it is no name of PopTorch's"
    return _suggest(name, [*_HOME, *_SUBMODULES])


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_SUBMODULES})
