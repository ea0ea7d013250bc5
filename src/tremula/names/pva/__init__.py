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
from tremula.vision.trace.reader import Event, Process, Thread, openTrace
from tremula.vision.trace.reader import TraceReader as Trace

__all__ = [
    "Block",
    "Compilation",
    "ComputeInstrumentation",
    "ComputeSet",
    "DebugContext",
    "Event",
    "Execution",
    "ExecutionStep",
    "ExternalExchangeInstrumentation",
    "IPU",
    "LivenessProgramStep",
    "LoweredVariable",
    "Operation",
    "OperationAnalysis",
    "Process",
    "Program",
    "ProgramVisitor",
    "Report",
    "Run",
    "Target",
    "TargetType",
    "Thread",
    "Tile",
    "Trace",
    "Variable",
    "openReport",
    "openTrace",
]
