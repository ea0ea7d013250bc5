"""Graphs: tensors and operations under one name, with inputs and outputs."""

from collections.abc import Callable, Iterable
from typing import Any

from tremula.base.errors import suggest
from tremula.frontends.popxl.core.context import GRAPHS, HOOK_HANDLES, HOOKS, NAMES
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.registry import VIEWS
from tremula.frontends.popxl.core.tensor import Constant, Tensor, Variable
from tremula.frontends.popxl.dtypes import dtype


class Graph:
    """A graph, made by `Ir.create_graph` or `Ir.create_empty_graph`; a context that adds to it."""

    ir: Any
    _id: str
    _prefix: str  # of the ids of its tensors
    _tensors: dict[str, Tensor]
    _ops: list[Op]
    _inputs: list[Tensor]
    _outputs: list[Tensor]
    _by_ref_inputs: set[Tensor]
    _hooks: dict[int, Callable[[Op], object]]
    _call_sites: list[Op]
    _name_counts: dict[str, int]
    is_differentiable: bool  # may be taken apart by autodiff of a caller
    gradients: dict[Any, Any]  # gradient graphs, by what they take and give
    plan: Any  # how it is executed; forgotten when it changes

    def __init__(self) -> None:
        raise RuntimeError(
            "popxl.Graph cannot be constructed directly. Use `popxl.Ir.create_graph`"
            " or `popxl.Ir.create_empty_graph`."
        )

    @classmethod
    def _make(cls, ir: object, id: str) -> "Graph":
        self = object.__new__(cls)
        self.ir, self._id = ir, id
        self._prefix = f"{id}/" if id else ""
        self._tensors, self._ops, self._inputs, self._outputs = {}, [], [], []
        self._by_ref_inputs, self._hooks, self._call_sites = set(), {}, []
        self._name_counts, self.is_differentiable = {}, True
        self.gradients, self.plan = {}, None
        return self

    # -- what it holds --

    @property
    def id(self) -> str:
        return self._id

    @property
    def name(self) -> str:
        return self._id

    @property
    def main_graph(self) -> "Graph":
        return self.ir.main_graph

    @property
    def is_main(self) -> bool:
        return not self._id

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(self._inputs)

    @property
    def inputs_by_name(self) -> dict[str, Tensor]:
        return {t.name: t for t in self._inputs}

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self._outputs)

    @property
    def by_ref_inputs(self) -> frozenset[Tensor]:
        """Inputs that a caller passes by reference: what is written to them, the caller sees."""
        return frozenset(self._by_ref_inputs)

    @property
    def call_sites(self) -> tuple[Op, ...]:
        """The operations of other graphs that call this one."""
        return tuple(self._call_sites)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(self._tensors.values())

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(t for t in self._tensors.values() if isinstance(t, Variable))

    @property
    def constants(self) -> tuple[Constant, ...]:
        return tuple(t for t in self._tensors.values() if isinstance(t, Constant))

    @property
    def ops(self) -> tuple[Op, ...]:
        """The operations, in the order they run."""
        return tuple(self._ops)

    @property
    def called_graphs(self) -> tuple["Graph", ...]:
        """The graphs that operations of this one call, each once."""
        return tuple(dict.fromkeys(g for op in self._ops for g in op.graphs))

    def get_tensor(self, tensor_id: str) -> Tensor:
        if tensor_id in self._tensors:
            return self._tensors[tensor_id]
        raise ValueError(
            f"There is no tensor {tensor_id!r} in graph {self._id or 'main'}:"
            f" {suggest(tensor_id, self._tensors)}"
        )

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, Tensor):
            raise TypeError(f"Value must be of type popxl.Tensor. Type: {type(value)}. {value}")
        return value.graph is self

    @property
    def _pb_graph(self) -> Any:
        return VIEWS["graph"](self)

    @staticmethod
    def _from_pb(view: Any) -> "Graph":
        return view.popxl_object

    # -- how it is changed --

    def mark_input(self, t: Tensor, by_ref: bool = False) -> None:
        self._inputs.append(t)
        if by_ref:
            self._by_ref_inputs.add(t)
        self.changed()

    def mark_as_output(self, t: Tensor) -> None:
        if t not in self:
            raise ValueError(f"{t!r} is not a tensor of graph {self._id or 'main'}")
        self._outputs.append(t)
        self.changed()

    def set_outputs(self, tensors: Iterable[Tensor]) -> None:
        """Give other outputs instead of those marked so far."""
        self._outputs = []
        for t in tensors:
            self.mark_as_output(t)
        self.changed()

    def add_op(self, op: Op) -> None:
        self.ir.check_open()
        op.id = self.ir.next_op_id()
        self._ops.append(op)
        for t in op.inputs:
            t.uses += 1
        for called in op.graphs:
            called._call_sites.append(op)
        self.plan = None
        for hook in [*self._hooks.values(), *(fn for _, fn in HOOKS.get())]:
            hook(op)

    def remove_op(self, op: Op) -> None:
        """Take an operation out; its results stay tensors of the graph."""
        self._ops.remove(op)
        for t in op.inputs:
            t.uses -= 1
        for called in op.graphs:
            called._call_sites.remove(op)
        for t in op.outputs:
            t.producer = None
        self.plan = None

    def move_behind_producers(self, ops: Iterable[Op]) -> None:
        """Let operations run as soon as their operands are there, in the order given."""
        moved = list(ops)
        rest = [op for op in self._ops if op not in moved]
        for op in moved:
            producers = {t.producer for t in op.inputs}
            last = max((i for i, other in enumerate(rest) if other in producers), default=-1)
            rest.insert(last + 1, op)
        self._ops = rest
        self.changed()

    def new_tensor(
        self, name: str, shape: tuple[int, ...], type_: dtype, meta_shape: tuple[int, ...] = ()
    ) -> Tensor:
        return Tensor._make(self, name, shape, dtype.as_dtype(type_), meta_shape)

    def add_tensor(self, t: Tensor, name: str) -> None:
        """Enter a tensor under a name that no other has; sets its name and id."""
        t.set_name(self._unique_name(name), self._prefix)
        self._tensors[t.id] = t

    def rename_tensor(self, t: Tensor, name: str) -> None:
        self.remove_tensor(t)
        self.add_tensor(t, name)

    def remove_tensor(self, t: Tensor) -> None:
        del self._tensors[t.id]

    def changed(self) -> None:
        """Forget how the graph is executed."""
        self.plan = None

    def _unique_name(self, name: str) -> str:
        """A name that no tensor of the graph has, the open scopes before it."""
        for owner, scope in reversed(NAMES.get()):
            if owner is self:
                name = f"{scope}/{name}"
        count = self._name_counts.get(name)
        if count is None:
            self._name_counts[name] = 0
            return name
        while True:
            count += 1
            result = f"{name}__t{count}"
            if result not in self._name_counts:
                self._name_counts[name] = count
                self._name_counts[result] = 0
                return result

    # -- hooks and contexts --

    def register_op_created_hook(self, fn: Callable[[Op], object]) -> int:
        """Call a function with each operation that is made in this graph; returns a handle."""
        handle = next(HOOK_HANDLES)
        self._hooks[handle] = fn
        return handle

    def remove_op_created_hook(self, handle: int) -> None:
        if handle not in self._hooks:
            raise KeyError(f"There is no hook {handle} in graph {self._id or 'main'}")
        del self._hooks[handle]

    def __enter__(self) -> "Graph":
        graphs = GRAPHS.get()
        if graphs and graphs[-1].ir is not self.ir:
            raise RuntimeError(
                f"Graph {self._id or 'main'} belongs to another Ir than the graph that is open"
            )
        GRAPHS.set((*graphs, self))
        return self

    def __exit__(self, *_error: object) -> None:
        GRAPHS.set(GRAPHS.get()[:-1])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            raise TypeError(f"Value must be of type popxl.Graph. Type: {type(other)}. {other}")
        return self is other

    def __hash__(self) -> int:
        return hash((self._id, id(self.ir)))

    def __repr__(self) -> str:
        return f"Graph[id={self._id or 'main'}]"
