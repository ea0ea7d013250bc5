"""The names that scripts written for libpva import; see docs/vision.md."""

from tremula.vision.pva.execution import Block, Execution, ExecutionStep, Run
from tremula.vision.pva.memory import LivenessProgramStep, Tile
from tremula.vision.pva.names import (
    IPU,
    ComputeInstrumentation,
    ExternalExchangeInstrumentation,
    TargetType,
)
from tremula.vision.pva.programs import (
    ComputeSet,
    Operation,
    OperationAnalysis,
    Program,
    ProgramVisitor,
)
from tremula.vision.pva.report import Compilation, Report, Target, openReport
from tremula.vision.pva.variables import DebugContext, LoweredVariable, Variable
from tremula.vision.trace.reader import openTrace

__all__ = [
    "Block",
    "Compilation",
    "ComputeInstrumentation",
    "ComputeSet",
    "DebugContext",
    "Execution",
    "ExecutionStep",
    "ExternalExchangeInstrumentation",
    "IPU",
    "LivenessProgramStep",
    "LoweredVariable",
    "Operation",
    "OperationAnalysis",
    "Program",
    "ProgramVisitor",
    "Report",
    "Run",
    "Target",
    "TargetType",
    "Tile",
    "Variable",
    "openReport",
    "openTrace",
]
