"""What a programmer writes: graphs, tensors, compute sets, programs, devices."""

from tremula.base.floats import QuarterFormat, pack_metadata
from tremula.base.print_format import PrintTensorFmt
from tremula.base.types import (
    BOOL,
    CHAR,
    FLOAT,
    HALF,
    INT,
    LONGLONG,
    QUARTER,
    QUARTER_METADATA,
    SHORT,
    SIGNED_CHAR,
    UNSIGNED_CHAR,
    UNSIGNED_INT,
    UNSIGNED_LONGLONG,
    UNSIGNED_SHORT,
    Type,
    float16,
    float32,
    half,
    int8,
    int16,
    int32,
    int64,
    quarter,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tremula.codelets import (
    InOut,
    Input,
    MultiVertex,
    Output,
    SupervisorVertex,
    Vector,
    VectorList,
    Vertex,
)
from tremula.poplar.control import (
    cycle_count,
    cycle_stamp,
    get_hw_seeds,
    set_floating_point_behaviour,
    set_hw_seeds,
    set_stochastic_rounding,
)
from tremula.poplar.graph import Graph
from tremula.poplar.mapping import VariableMappingMethod
from tremula.poplar.programs import (
    Abort,
    AbortOnCondition,
    AssumeEqualAcrossReplicas,
    Block,
    Call,
    Copy,
    CrossReplicaCopy,
    ErrorProgram,
    Execute,
    Function,
    If,
    Loop,
    PrintTensor,
    Program,
    Repeat,
    RepeatWhileFalse,
    RepeatWhileTrue,
    Sequence,
    Switch,
    Sync,
    SyncType,
    Waits,
    WriteUndef,
)
from tremula.poplar.serialize import SerializationFormat
from tremula.poplar.spellings import add_cpp_spellings
from tremula.poplar.streams import DataStream, HostFunction, RemoteBuffer, ReplicatedStreamMode
from tremula.poplar.target import Device, DeviceManager, IPUModel, Target, TargetType
from tremula.poplar.tensors.structure import (
    TensorRearranger,
    reorder_to_simplify,
    sorted_contiguous_regions,
    unbroadcast,
)
from tremula.poplar.tensors.tensor import Interval, Tensor, append, concat
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
from tremula.poplar.vertices.compute_set import ComputeSet, FieldRef, VertexRef

for _class in (
    Device, DeviceManager, Graph, PrintTensorFmt, Sequence, Switch, Target, Tensor,
    TensorRearranger,
):  # fmt: skip
    add_cpp_spellings(_class)
add_cpp_spellings(IPUModel, fields=("n_ipus", "tiles_per_ipu", "version"))

__all__ = [
    # graphs and tensors
    "ComputeSet", "FieldRef", "Graph", "Interval", "SerializationFormat", "Slices", "Tensor",
    "TensorRearranger",
    "TileMapping", "VariableMappingMethod", "VertexRef", "append", "concat", "reorder_to_simplify",
    "sorted_contiguous_regions", "unbroadcast",
    # vertices
    "InOut", "Input", "MultiVertex", "Output", "SupervisorVertex", "Vector", "VectorList", "Vertex",
    # programs
    "Abort", "AbortOnCondition", "AssumeEqualAcrossReplicas", "Block", "Call", "Copy",
    "CrossReplicaCopy", "ErrorProgram", "Execute", "If", "Loop", "PrintTensor", "PrintTensorFmt",
    "Program", "Repeat", "RepeatWhileFalse", "RepeatWhileTrue", "Sequence", "Switch", "Sync",
    "SyncType", "Waits", "WriteUndef",
    "cycle_count", "cycle_stamp", "get_hw_seeds", "set_floating_point_behaviour", "set_hw_seeds",
    "set_stochastic_rounding",
    # the host
    "DataStream", "Function", "HostFunction", "RemoteBuffer", "ReplicatedStreamMode",
    # devices
    "Device", "DeviceManager", "IPUModel", "Target", "TargetType",
    # types
    "BOOL", "CHAR", "FLOAT", "HALF", "INT", "LONGLONG", "QUARTER", "QUARTER_METADATA", "SHORT",
    "SIGNED_CHAR", "UNSIGNED_CHAR", "UNSIGNED_INT", "UNSIGNED_LONGLONG", "UNSIGNED_SHORT", "Type",
    "QuarterFormat", "pack_metadata",
    "float16", "float32", "half", "int8", "int16", "int32", "int64", "quarter", "uint8", "uint16",
    "uint32", "uint64",
]  # fmt: skip
