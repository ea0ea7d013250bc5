"""The Ir: a main graph, the graphs it calls, and how many replicas run it."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from weakref import WeakValueDictionary

from tremula.base.storage.atomic_file import write_text
from tremula.frontends.popart.data_flow import DataFlow
from tremula.frontends.popart.enums import VirtualGraphMode
from tremula.frontends.popart.options.options import SessionOptions
from tremula.frontends.poptorch.instances import this_instance
from tremula.frontends.popxl.core.create_graph import build_graph, name_of
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.module import Module
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.registry import VIEWS
from tremula.frontends.popxl.core.svg import svg_of
from tremula.frontends.popxl.dot import activate_all, is_active, write_dot
from tremula.frontends.popxl.replica_grouping import ReplicaGrouping

if TYPE_CHECKING:
    from tremula.frontends.popxl.core.remote_buffer import RemoteBuffer
    from tremula.frontends.popxl.core.streams import (
        DeviceToHostStream,
        HostToDeviceStream,
        Stream,
    )

_ids = itertools.count()
FIRST_OP_ID = 100  # as in PopART


class Ir:
    """A program: `main_graph` is what runs."""

    _ir_cache: "ClassVar[WeakValueDictionary[int, Ir]]" = WeakValueDictionary()  # noqa: RUF012

    def __init__(self, replication: int | Literal["popdist"] = 1):
        self._id = next(_ids)
        self._graphs: dict[str, Graph] = {}
        self._names: dict[str, int] = {}
        self._main_graph = self._add_graph("")
        self._num_host_transfers = 1
        self.data_flow = DataFlow(1, {})  # inputs and outputs of a session of PopART's
        self._is_frozen = False  # a session exists
        self.stream_of_tensor: dict[str, Stream] = {}  # by id
        self.remote_buffers: list[RemoteBuffer] = []
        self.session_options = _session_options()
        self._op_ids = itertools.count(FIRST_OP_ID)
        Ir._ir_cache[self._id] = self
        self.replica_offset = 0  # of the first replica of this process
        if replication == "popdist":
            instance = this_instance()
            self._set_replicas(instance.n_local_replicas)
            self.replica_offset = instance.replica_index_offset
            self.session_options.enableDistributedReplicatedGraphs = True
            self.session_options.globalReplicationFactor = instance.n_total_replicas
        else:
            self._set_replicas(_replicas(replication))

    @property
    def id(self) -> int:
        return self._id

    def next_op_id(self) -> int:
        """The number of one more operation."""
        return next(self._op_ids)

    @property
    def main_graph(self) -> Graph:
        """The graph that runs."""
        return self._main_graph

    @property
    def num_host_transfers(self) -> int:
        """How often a run loads from, or stores to, each stream."""
        return self._num_host_transfers

    @num_host_transfers.setter
    def num_host_transfers(self, value: int) -> None:
        self._num_host_transfers = int(value)

    @property
    def _pb_ir(self) -> Any:
        return VIEWS["ir"](self)

    @staticmethod
    def _from_pb(view: Any) -> "Ir":
        return view.popxl_object

    @property
    def replication_factor(self) -> int:
        """How many replicas run the program."""
        return self.session_options.getGlobalReplicationFactor()

    @replication_factor.setter
    def replication_factor(self, value: int) -> None:
        if self._is_frozen:
            raise RuntimeError("The replication factor cannot change after a Session was created")
        self._set_replicas(_replicas(value))
        self.replica_offset = 0
        self.session_options.enableDistributedReplicatedGraphs = False

    def _set_replicas(self, n: int) -> None:
        """PopART's options hold the number of replicas: scripts may read and set them there."""
        self.session_options.enableReplicatedGraphs = n > 1
        self.session_options.replicatedGraphCount = n

    @property
    def instance_replication_factor(self) -> int:
        """How many of them this process runs."""
        return self.session_options.n_replicas

    def replica_grouping(self, stride: int = 1, group_size: int | None = None) -> ReplicaGrouping:
        """A partition of the replicas: `group_size` members, `stride` apart."""
        return ReplicaGrouping.of_stride(self.replication_factor, stride, group_size)

    def replica_grouping_from_assignments(self, assignment: Sequence[int]) -> ReplicaGrouping:
        """A partition of the replicas by a group's number for each."""
        return ReplicaGrouping.of_assignment(self.replication_factor, assignment)

    def create_graph(self, fn: Callable | Module, *args: object, **kwargs: object) -> Graph:
        """The graph of a function or Module, for tensors like those given."""
        graph = self.create_empty_graph(name_of(fn))
        build_graph(graph, fn, args, kwargs)
        return graph

    def create_empty_graph(self, name: str | None = None) -> Graph:
        """A graph without inputs, operations and outputs."""
        return self._add_graph(self._subgraph_name(name or "graph"))

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """All graphs, the main one first."""
        return tuple(self._graphs.values())

    def get_all_h2d_streams(self) -> "set[HostToDeviceStream]":
        """Streams that some operation loads from."""
        return self._used_streams("HostLoad")

    def get_all_d2h_streams(self) -> "set[DeviceToHostStream]":
        """Streams that some operation stores to."""
        return self._used_streams("HostStore")

    def dot_checkpoint(self, check: str, save_dir: str | Path | None = None) -> None:
        """Write a picture of every graph as it is now: `<check>.dot` and `<check>.svg`.

        Checkpoints are chosen by the session option `dotChecks` or by POPART_DOT_CHECKS; if neither
        names any, all are written. The folder stays that of later pictures.
        """
        if save_dir is not None:
            self.session_options.logDir = str(save_dir)
        activate_all(self)
        if not is_active(self, check):
            return
        write_dot(self, check)
        folder = Path(self.session_options.logDir or ".")
        write_text((folder / f"{check}.svg"), self.to_svg())

    def to_svg(self) -> str:
        """All graphs as a picture: tensors, operations, and which graph calls which."""
        return svg_of(self)

    def _used_streams(self, kind: str) -> set:
        return {
            op.attributes["stream"]
            for graph in self._graphs.values()
            for op in graph.ops
            if op.kind == kind
        }

    def _subgraph_name(self, name: str) -> str:
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return f"{name}_subgraph({count})"

    def _add_graph(self, id: str) -> Graph:
        graph = self._graphs[id] = Graph._make(self, id)
        return graph

    def graph_of_id(self, id: str) -> Graph:
        return self._graphs[id]

    def _remove_graph(self, graph: Graph) -> None:
        del self._graphs[graph.id]

    def check_open(self) -> None:
        if self._is_frozen:
            raise RuntimeError(
                "The Ir cannot be changed after a Session was created: build everything before"
            )

    def ops_of_all_graphs(self) -> list[Op]:
        return [op for graph in self._graphs.values() for op in graph.ops]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ir):
            raise TypeError(f"Value must be of type popxl.Ir. Type: {type(other)}. {other}")
        return self is other

    def __hash__(self) -> int:
        return self._id

    def __repr__(self) -> str:
        n = self.replication_factor
        return f"Ir[id={self._id}, replicas={n}, graphs={len(self._graphs)}]"


def _session_options() -> SessionOptions:
    """PopART's options, as PopXL sets them: everything that runs is written in the graphs."""
    options = SessionOptions()
    options.virtualGraphMode = VirtualGraphMode.Manual
    options.enableExplicitIR(True)
    options.aliasZeroCopy = options.decomposeGradSum = True
    options.enableInplaceAmbiguityChecking = True
    options.enableVariablesCaching = False
    return options


def _replicas(value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"The number of replicas must be a positive integer, got {value!r}")
    return value
