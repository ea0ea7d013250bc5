"""Tensors: values of a graph, by name, with a type and a shape. Operators make operations."""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch

from tremula.frontends.popxl.core.registry import VIEWS, apply
from tremula.frontends.popxl.dtypes import dtype as DType
from tremula.frontends.popxl.errors import UndefinedValue
from tremula.frontends.popxl.replica_grouping import ReplicaGrouping

RetrievalMode = Literal["one_per_group", "all_replicas"]


class TensorSpec(Mapping):
    """The shape and type of a tensor that is not there yet; `**spec` gives both by name."""

    def __init__(self, shape: Sequence[int], dtype: DType, meta_shape: Sequence[int] | None = ()):
        self.shape, self.dtype = tuple(int(n) for n in shape), dtype
        self.meta_shape = tuple(meta_shape or ())

    def to_dict(self) -> dict[str, Any]:
        """Shape, type and whole shape by name."""
        return {"shape": self.shape, "dtype": self.dtype, "meta_shape": self.meta_shape}

    def to_tuple(self) -> tuple[tuple[int, ...], DType, tuple[int, ...]]:
        return self.shape, self.dtype, self.meta_shape

    def __getitem__(self, key: str) -> tuple[int, ...] | DType:
        if key not in {"shape", "dtype", "meta_shape"}:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(("shape", "dtype", "meta_shape"))

    def __len__(self) -> int:
        return 3

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorSpec) and tuple(self.values()) == tuple(other.values())

    def __hash__(self) -> int:
        return hash(tuple(self.values()))

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype!r}, meta_shape={self.meta_shape})"


class Tensor:
    """A value of a graph. Made by operations and constructors, never directly."""

    __slots__ = (
        "_dtype", "_graph", "_id", "_meta_shape", "_name", "_shape", "producer", "uses",
    )  # fmt: skip
    producer: Any  # an operation, or None
    # Classes by PopART's name of the kind.
    _tensor_types: "ClassVar[dict[str, type[Tensor]]]" = {}  # noqa: RUF012
    # NumPy's operators leave theirs to ours.
    __array_ufunc__ = None

    def __init__(self) -> None:
        raise RuntimeError("popxl.Tensor cannot be constructed directly.")

    def __init_subclass__(cls, tensor_type: str | None = None, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if tensor_type is not None:
            Tensor._tensor_types[tensor_type] = cls

    @classmethod
    def _make(
        cls, graph: Any, name: str, shape: tuple[int, ...], type_: DType, meta_shape: tuple = ()
    ) -> Self:
        self = object.__new__(cls)
        self._graph, self._shape, self._dtype = graph, shape, type_
        self._meta_shape = meta_shape
        self.producer = None  # the operation that makes it
        self.uses = 0  # how many operands it is
        graph.add_tensor(self, name)
        return self

    def set_name(self, name: str, prefix: str) -> None:
        """The name, and the id, which begins with a prefix of the graph: for the graph to call."""
        self._name, self._id = name, prefix + name

    # -- what it is --

    @property
    def id(self) -> str:
        """The name, with the names of its graph before it."""
        return self._id

    @property
    def name(self) -> str:
        """The name without that of the graph."""
        return self._name

    @property
    def scope(self) -> str:
        """The name of the graph, as ids of its tensors begin; "" for the main graph."""
        return self._graph.id

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def meta_shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor that this is a replica's shard of; () for others."""
        return self._meta_shape

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self._shape, self._dtype, self._meta_shape)

    @property
    def rank(self) -> int:
        return len(self._shape)

    @property
    def nelms(self) -> int:
        return prod(self._shape)

    @property
    def graph(self) -> Any:
        return self._graph

    @property
    def ir(self) -> Any:
        return self._graph.ir

    def strides(self, shape: Sequence[int] | None = None) -> tuple[int, ...]:
        """Distances in bytes between neighbours of each dimension, as NumPy's."""
        shape = self._shape if shape is None else tuple(shape)
        return tuple(self._dtype.n_bytes * prod(shape[i + 1 :]) for i in range(len(shape)))

    @property
    def ipu(self) -> int:
        """The chip that makes or first uses the tensor."""
        return self._setting("ipu")

    @property
    def tile_set(self) -> str:
        """The tiles that make or first use the tensor: "compute" or "io"."""
        return self._setting("tile_set")

    def _setting(self, name: str) -> Any:
        if name == "ipu" and self.producer is not None and self.producer.kind == "IpuCopy":
            return self.producer.attributes["destination"]
        op = self.producer or next((op for op in self._graph.ops if self in op.inputs), None)
        if op is None or (name == "ipu" and not op.has_ipu):
            raise UndefinedValue(
                f"Tensor {self.id} does not have a {name}: no operation makes or uses it yet"
            )
        return getattr(op, name)

    @property
    def location_info(self) -> str:
        """Where the tensor is, as far as it is known."""
        try:
            return f"ipu={self.ipu}, tile_set={self.tile_set}"
        except UndefinedValue:
            return "undefined"

    @property
    def in_sync_with_ipu(self) -> bool:
        """Whether the host's copy is the device's; only variables have one."""
        return True

    @property
    def _pb_tensor(self) -> Any:
        return VIEWS["tensor"](self)

    @staticmethod
    def _from_pb_tensor(view: Any) -> "Tensor":
        return view.popxl_object

    def _ensure_tensor(
        self,
        value: "TensorLike",
        dtype: DType | None = None,
        raise_on_empty: bool = True,
    ) -> "Tensor":
        """A tensor as it is; other values as constants of this tensor's type."""
        if isinstance(value, Tensor):
            return value
        made = apply("constant", value, dtype or self._dtype)
        if raise_on_empty and not made.nelms:
            raise ValueError(
                f"{value!r} has no elements, which is most likely a mistake. If it is not, make a"
                " tensor of it first: popxl.constant(value)"
            )
        return made

    def _ensure_dtype_match(self, other: "Tensor") -> None:
        if self._dtype != other.dtype:
            raise ValueError(f"dtypes do not match: {self!r} and {other!r}")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Tensor):
            return NotImplemented
        return self._id == other._id and self._graph.ir is other._graph.ir

    def __hash__(self) -> int:
        return hash((self._id, id(self._graph.ir)))

    def __repr__(self) -> str:
        return f"Tensor[{self._id} {self._dtype!r} {self._shape}]"

    def __len__(self) -> int:
        if not self._shape:
            raise ValueError("Python len of a 0-rank tensor is undefined.")
        return self._shape[0]

    # The elements are not known while a graph is built: `list(t)` and `x in t` raise TypeError, and
    # a tensor is not an Iterable.
    __iter__ = None
    __contains__ = None

    def __bool__(self) -> bool:
        raise ValueError(
            f"The value of {self!r} is not known while a graph is built. For a branch use"
            " ops.conditional, to compare tensors by name use `is`"
        )

    # -- shapes --

    def transpose(self, permutation: Sequence[int] | None = None) -> "Tensor":
        return apply("transpose", self, permutation)

    def transpose_(self, permutation: Sequence[int] | None = None) -> "Tensor":
        return apply("transpose_", self, permutation)

    def reshape(self, shape: Sequence[int]) -> "Tensor":
        return apply("reshape", self, shape)

    def reshape_(self, shape: Sequence[int]) -> "Tensor":
        return apply("reshape_", self, shape)

    def flatten(self) -> "Tensor":
        return apply("flatten", self)

    def flatten_(self) -> "Tensor":
        return apply("flatten_", self)

    def detach(self) -> "Tensor":
        return apply("detach", self)

    def detach_(self) -> "Tensor":
        return apply("detach_", self)

    def diag(self) -> "Tensor":
        """The diagonal of a square matrix."""
        if self.rank != 2 or self._shape[0] != self._shape[1]:
            raise ValueError(f"`diag` needs a square matrix, got {self!r}")
        n = self._shape[0]
        return apply("gather", self.flatten(), np.arange(n, dtype=np.int32) * (n + 1), axis=0)

    def copy_to_ipu(self, destination: int, source: int | None = None) -> "Tensor":
        """A copy on another chip of the replica; the source is by default where it is made."""
        return apply("ipu_copy", self, destination, source)

    @property
    def T(self) -> "Tensor":
        """The tensor with its dimensions reversed."""
        return self.transpose()

    @property
    def T_(self) -> "Tensor":
        """A view with its dimensions reversed."""
        return self.transpose_()

    # -- operators --

    def __add__(self, other: "TensorLike") -> "Tensor":
        return apply("add", self, self._ensure_tensor(other))

    def __radd__(self, other: "TensorLike") -> "Tensor":
        return apply("add", self._ensure_tensor(other), self)

    def __iadd__(self, other: "TensorLike") -> Self:
        apply("add_", self, self._ensure_tensor(other))
        return self

    def __sub__(self, other: "TensorLike") -> "Tensor":
        return apply("sub", self, self._ensure_tensor(other))

    def __rsub__(self, other: "TensorLike") -> "Tensor":
        return apply("sub", self._ensure_tensor(other), self)

    def __mul__(self, other: "TensorLike") -> "Tensor":
        return apply("mul", self, self._ensure_tensor(other))

    def __rmul__(self, other: "TensorLike") -> "Tensor":
        return apply("mul", self._ensure_tensor(other), self)

    def __truediv__(self, other: "TensorLike") -> "Tensor":
        return apply("div", self, self._ensure_tensor(other))

    def __rtruediv__(self, other: "TensorLike") -> "Tensor":
        return apply("div", self._ensure_tensor(other), self)

    def __pow__(self, other: "TensorLike") -> "Tensor":
        return apply("pow", self, self._ensure_tensor(other))

    def __rpow__(self, other: "TensorLike") -> "Tensor":
        return apply("pow", self._ensure_tensor(other), self)

    def __mod__(self, other: "TensorLike") -> "Tensor":
        return apply("fmod", self, self._ensure_tensor(other))

    def __rmod__(self, other: "TensorLike") -> "Tensor":
        return apply("fmod", self._ensure_tensor(other), self)

    def __matmul__(self, other: "TensorLike") -> "Tensor":
        return apply("matmul", self, self._ensure_tensor(other))

    def __rmatmul__(self, other: "TensorLike") -> "Tensor":
        return apply("matmul", self._ensure_tensor(other), self)

    def __and__(self, other: "TensorLike") -> "Tensor":
        return apply("logical_and", self, self._ensure_tensor(other))

    def __rand__(self, other: "TensorLike") -> "Tensor":
        return apply("logical_and", self._ensure_tensor(other), self)

    def __or__(self, other: "TensorLike") -> "Tensor":
        return apply("logical_or", self, self._ensure_tensor(other))

    def __ror__(self, other: "TensorLike") -> "Tensor":
        return apply("logical_or", self._ensure_tensor(other), self)

    def __neg__(self) -> "Tensor":
        return apply("negate", self)

    def __invert__(self) -> "Tensor":
        return apply("logical_not", self)

    def __getitem__(self, key: object) -> "Tensor":
        result = _as_index_tensor(key)
        if result is not None:
            if result.dtype.name == "bool":
                return apply("where", result, self, self._ensure_tensor(0))
            return apply("gather", self, result, axis=0)
        return _sliced(self, key if isinstance(key, tuple) else (key,))


def _as_index_tensor(key: object) -> Tensor | None:
    """A key that is a tensor of integers or booleans, or what becomes one."""
    if isinstance(key, list):
        key = np.asarray(key)
    if isinstance(key, np.ndarray | torch.Tensor):
        key = apply("constant", key)
    if not isinstance(key, Tensor):
        return None
    if not (key.dtype.is_integer or key.dtype.name == "bool"):
        raise TypeError(f"A tensor is indexed by integers or booleans, got {key!r}")
    return key


def _sliced(t: Tensor, keys: tuple[object, ...]) -> Tensor:
    """The part that integers and slices choose."""
    if len(keys) > t.rank:
        raise IndexError(f"{len(keys)} indices for a tensor of rank {t.rank}: {t!r}")
    start, stop, step, squeezed = [], [], [], []
    for axis, key in enumerate(keys):
        if isinstance(key, bool) or not isinstance(key, int | np.integer | slice):
            raise TypeError(
                f"Invalid key {key!r} of type {type(key).__name__}: tensors are indexed by"
                " integers, slices, and tensors or arrays of integers or booleans"
            )
        if isinstance(key, slice):
            start.append(key.start)
            stop.append(key.stop)
            step.append(1 if key.step is None else key.step)
            continue
        n = t.shape[axis]
        if not -n <= key < n:
            raise IndexError(f"Index {key} is out of range for dimension {axis} of {t!r}")
        start.append(int(key) % n)
        stop.append(int(key) % n + 1)
        step.append(1)
        squeezed.append(axis)
    out = apply("slice", t, start, stop, step, axis=list(range(len(keys))))
    return apply("squeeze", out, squeezed) if squeezed else out


class Constant(Tensor, tensor_type="Const"):
    """A tensor whose values are part of the program."""

    __slots__ = ("data",)
    data: np.ndarray

    def copy_to_ipu(self, dst: int, src: int) -> Tensor:  # type: ignore[override]
        """A copy on another chip; no operation makes a constant, so its chip must be named."""
        return apply("ipu_copy", self, dst, src)


class Variable(Tensor, tensor_type="Variable"):
    """A tensor of the main graph that keeps its values between runs."""

    __slots__ = ("_grouping", "_mode", "data", "is_read_only", "remote", "shard", "synced")
    data: Any  # what the host holds: (groups, *shape) if replicas differ
    remote: tuple[Any, int] | None  # buffer and entry of one in remote memory
    shard: tuple[Tensor, int] | None  # this replica's part of a sharded one, number of shards

    def copy_to_ipu(self, dst: int, src: int) -> Tensor:  # type: ignore[override]
        """A copy on another chip; no operation makes a variable, so its chip must be named."""
        return apply("ipu_copy", self, dst, src)

    @property
    def replica_grouping(self) -> ReplicaGrouping:
        """Which replicas start with the same value."""
        return self._grouping

    @property
    def retrieval_mode(self) -> RetrievalMode:
        """Whether reading returns one value for each group, or all."""
        return self._mode

    @property
    def shape_on_replica(self) -> tuple[int, ...]:
        return self._shape

    @property
    def shape_on_host(self) -> tuple[int, ...]:
        """One more dimension, the first, where groups of replicas have their own values."""
        n = self._grouping.num_groups
        return (n, *self._shape) if n > 1 else self._shape

    @property
    def _memmap_arr(self) -> np.memmap | None:
        """The mapped file that the variable's values are in, as scripts read it."""
        return self.data if isinstance(self.data, np.memmap) else None

    @property
    def in_sync_with_ipu(self) -> bool:
        return self.synced


class TensorByRef(Tensor):
    """An annotation: the argument of a graph is passed by reference, and may be changed."""

    __slots__ = ()


ScalarType = int | float | bool  # what becomes a tensor without dimensions
HostTensor = np.ndarray | torch.Tensor | Sequence
HostScalarTensor = ScalarType | HostTensor
TensorLike = Tensor | HostScalarTensor
