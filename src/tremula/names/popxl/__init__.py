"""popxl: explicit graphs, remote memory, collectives. Names only; code is in tremula.frontends."""

from tremula.base.libraries.fallbacks import stand_in_for_libraries as _stand_in_for_libraries
from tremula.base.libraries.redirects import add_modules as _add_modules
from tremula.base.version import VERSION as __version__  # noqa: N811
from tremula.frontends.popart.enums import TileSet
from tremula.frontends.popxl.core import internal as _internal  # views
from tremula.frontends.popxl.core.constructors import (
    constant,
    graph_input,
    graph_output,
    remote_replica_sharded_variable,
    remote_variable,
    replica_sharded_variable,
    variable,
)
from tremula.frontends.popxl.core.context import (
    gcg,
    get_current_graph,
    get_ir,
    get_main_graph,
    gir,
    gmg,
    io_tiles,
    ipu,
    name_scope,
    pipeline_stage,
)
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.host_data import LazyArray, open_memmap
from tremula.frontends.popxl.core.ir import Ir
from tremula.frontends.popxl.core.module import Module
from tremula.frontends.popxl.core.order import in_sequence
from tremula.frontends.popxl.core.remote_buffer import (
    RemoteBuffer,
    remote_buffer,
    replica_sharded_buffer,
)
from tremula.frontends.popxl.core.seeds import create_seeds
from tremula.frontends.popxl.core.streams import (
    DeviceToHostStream,
    HostToDeviceStream,
    d2h_stream,
    h2d_stream,
)
from tremula.frontends.popxl.core.tensor import Constant, Tensor, TensorByRef, TensorSpec, Variable
from tremula.frontends.popxl.dtypes import (
    bool,
    complex64,
    complex128,
    double,
    dtype,
    float,
    float8_143,
    float8_152,
    float16,
    float32,
    float64,
    half,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tremula.frontends.popxl.locations import (
    ExecutionContext,
    ReplicatedTensorSharding,
    TensorLocation,
    TensorStorage,
)
from tremula.frontends.popxl.replica_grouping import ReplicaGrouping
from tremula.frontends.popxl.run import popart_session as _popart_session  # enters itself
from tremula.frontends.popxl.run.session import Session

from . import ops, transforms
from ._modules import MODULES as _MODULES

_PARENTS = {"popxl": globals(), "popxl.ops": vars(ops), "popxl.transforms": vars(transforms)}
for _name, _module in _add_modules("popxl", _MODULES).items():
    _parent, _, _last = f"popxl.{_name}".rpartition(".")
    _PARENTS.get(_parent, {}).setdefault(_last, _module)

_stand_in_for_libraries()  # of custom operations, which scripts import through cppimport
