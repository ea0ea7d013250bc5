"""A codelet written in Python: what it is, its native kernels, its cost, its stored form."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING

import numpy as np

from tremula.base.errors import (
    GraphObjectCreationError,
    MissingPerfEstimate,
    PoplarError,
    suggest,
)
from tremula.base.provenance import Provenance
from tremula.base.types import Type
from tremula.codelets.analysis_cache import analysis_of
from tremula.codelets.cost.counting import CostModel
from tremula.codelets.cost.taint import TaintTable
from tremula.codelets.flops import vector_flops_per_cycle
from tremula.codelets.kernel.kernel_source import CodeletKernelText, Variant, host_kernel_text
from tremula.codelets.python.function_source import FunctionSource, for_workers, read_function
from tremula.codelets.spec import (
    N_WORKERS,
    CodeletSpec,
    CostInput,
    CostView,
    VertexBase,
)
from tremula.codelets.stored_codelet import DAMAGES, codelet_as_dict, read_codelet, refused
from tremula.codelets.vertex import Vertex, base_of, fields_of

if TYPE_CHECKING:
    from tremula.hardware import Chip

KernelKey = tuple[Variant, bool, int]  # which kernel, has it rounding modes, for how many workers
CostMethod = Callable[[CostView, object], object]


@dataclass(eq=False)
class PythonCodelet:
    """Implements the `Codelet` protocol for a Vertex class, or for one read from a file."""

    spec: CodeletSpec
    compute: FunctionSource  # what a tile runs
    provenance: Provenance = Provenance.DERIVED
    host_compute: FunctionSource | None = None  # what a host runs in its place, for speed
    cost_method: CostMethod | None = None
    flops_method: CostMethod | None = None
    bytes_method: CostMethod | None = None
    instance_method: CostMethod | None = None
    matrix_types: tuple[Type, Type] | None = None  # of inputs and partials, on the matrix unit
    strided_lists: tuple[str, ...] = ()  # of equal vectors at equal distances, by those numbers
    has_stored_cost: bool = False  # it had a `cycles` method, which files do not store
    vertex_class: type | None = None
    _addresses: dict[KernelKey, int] = field(default_factory=dict)
    _texts: dict[KernelKey, str] = field(default_factory=dict)
    _is_data_dependent: bool | None = None

    @property
    def is_data_dependent(self) -> bool:
        """True if loops or branches depend on data and no `cycles` method states the cost."""
        if self.cost_method is not None or self.has_stored_cost:
            return False
        if self._is_data_dependent is None:
            by_name = {f.name: f for f in self.spec.fields}
            model = CostModel(self.compute, self.spec.fields, self.spec.base)
            table = TaintTable(self.compute, by_name, {}, model.kinds(self.compute))
            self._is_data_dependent = table.is_data_dependent() or not model.can_slice()
        return self._is_data_dependent

    def kernel_text(
        self, variant: Variant = Variant.RUN, *, has_modes: bool = False,
        n_workers: int = N_WORKERS,
    ) -> str:  # fmt: skip
        """The generated Python text of a kernel."""
        return self._text(self._key(variant, has_modes, n_workers))

    def kernel_address(self, *, has_modes: bool = False, n_workers: int = N_WORKERS) -> int:
        return self._address(self._key(Variant.RUN, has_modes, n_workers))

    def counted_kernel_address(self, *, has_modes: bool = False, n_workers: int = N_WORKERS) -> int:
        return self._address(self._key(Variant.COUNTED, has_modes, n_workers))

    def _key(self, variant: Variant, has_modes: bool, n_workers: int) -> KernelKey:
        """Only a MultiVertex has different kernels for different numbers of workers."""
        is_shared = self.spec.base is VertexBase.MULTI_VERTEX
        return variant, has_modes, n_workers if is_shared else N_WORKERS

    def _text(self, key: KernelKey) -> str:
        if key not in self._texts:
            self._texts[key] = self._new_text(*key).text()
        return self._texts[key]

    def _new_text(self, variant: Variant, has_modes: bool, n_workers: int) -> CodeletKernelText:
        spec, host_compute = self.spec, self._host_compute(variant, has_modes)
        if host_compute is not None:
            return host_kernel_text(spec.name, host_compute, spec.fields)
        compute = for_workers(self.compute, n_workers)
        return CodeletKernelText(spec.name, compute, spec.fields, spec.base, variant, has_modes)

    def _host_compute(self, variant: Variant, has_modes: bool) -> FunctionSource | None:
        """`compute_on_host`, if a kernel is made of it.

        Not with rounding modes: which worker rounds what decides the random bits it rounds with.
        """
        return self.host_compute if variant is Variant.RUN and not has_modes else None

    def _address(self, key: KernelKey) -> int:
        if key not in self._addresses:
            # Not at the top: importing Numba takes a second.
            from tremula.codelets.kernel.build import compile_kernel

            text, function = self._text(key), self._host_compute(*key[:2]) or self.compute
            self._addresses[key] = compile_kernel(self.spec.name, text, function)
        return self._addresses[key]

    def cycles(self, cost_input: CostInput) -> np.ndarray:
        """int64[n]: from the `cycles` method, or counted from sizes and state."""
        if self.cost_method is not None:
            value = self.cost_method(CostView(cost_input), cost_input.chip)
            return self._checked_column("cycles", value, cost_input.n_rows)
        if self.is_data_dependent or self.has_stored_cost:
            raise self._missing_cost()
        return self._counted_cycles(cost_input)

    def flops(self, cost_input: CostInput) -> np.ndarray | None:
        """int64[n] from the `flops` method; None if there is none."""
        if self.flops_method is None:
            return None
        value = self.flops_method(CostView(cost_input), cost_input.chip)
        return self._checked_column("flops", value, cost_input.n_rows)

    def field_data_bytes(self, cost_input: CostInput) -> np.ndarray | None:
        """int64[n] from the `field_data_bytes` method; None if there is none."""
        if self.bytes_method is None:
            return None
        value = self.bytes_method(CostView(cost_input), cost_input.chip)
        return self._checked_column("field_data_bytes", value, cost_input.n_rows)

    def instance_bytes(self, cost_input: CostInput) -> np.ndarray | None:
        """int64[n] from the `instance_bytes` method; None if there is none."""
        if self.instance_method is None:
            return None
        value = self.instance_method(CostView(cost_input), cost_input.chip)
        return self._checked_column("instance_bytes", value, cost_input.n_rows)

    def peak_flops_per_cycle(self, chip: "Chip") -> int:
        """Of the matrix unit if it uses one and the chip has one for its types."""
        matrix = chip.flops_per_cycle(*self.matrix_types) if self.matrix_types else 0
        return matrix or vector_flops_per_cycle(self.spec, chip)

    def _missing_cost(self) -> MissingPerfEstimate:
        if self.has_stored_cost:
            why = "has a `cycles` method, which files do not store"
        else:
            why = "runs loops or branches that depend on its data"
        return MissingPerfEstimate(
            f"the cycles of codelet {self.spec.name!r} are not known before it runs: it {why}.",
            source=self.spec.source,
            hint="run the program once and read the counted cycles, or write a method "
            "`def cycles(v, chip)` that returns worker cycles from v.sizes",
        )

    def _checked_column(self, what: str, value: object, n_rows: int) -> np.ndarray:
        column = np.asarray(value)
        if column.shape not in ((), (n_rows,)) or column.dtype.kind not in "iuf":
            raise MissingPerfEstimate(
                f"{what} of codelet {self.spec.name!r} must return a number or {n_rows} of them, "
                f"got shape {column.shape} of {column.dtype}.",
                source=self.spec.source,
                hint="compute with whole columns, v.sizes['x'] // 2 say",
            )
        if column.size and not (np.isfinite(column).all() and column.min() >= 0):
            raise MissingPerfEstimate(
                f"{what} of codelet {self.spec.name!r} returned {column.min()}.",
                source=self.spec.source,
                hint="return numbers that are not negative",
            )
        whole = np.ceil(column).astype(np.int64) if column.dtype.kind == "f" else column
        return np.broadcast_to(whole.astype(np.int64), (n_rows,)).copy()

    def _counted_cycles(self, cost_input: CostInput) -> np.ndarray:
        cycles = np.zeros(cost_input.n_rows, np.int64)
        address = self._address(self._key(Variant.COST, False, cost_input.chip.n_workers))
        call_kernel(address, None, cost_input.columns, 0, cost_input.n_rows, cycles)
        return cycles

    def to_dict(self) -> dict[str, object]:
        has_cost = self.cost_method is not None or self.has_stored_cost
        return codelet_as_dict(
            self.spec, self.compute, self.provenance, has_cost, self.host_compute
        )

    def content_hash(self) -> str:
        """Changes with anything that changes what the codelet computes or costs."""
        content = self.to_dict()
        content.pop("source", None)
        text = json.dumps(content, sort_keys=True) + self._cost_text()
        return hashlib.sha256(text.encode()).hexdigest()

    def _cost_text(self) -> str:
        methods = (self.cost_method, self.flops_method, self.bytes_method, self.instance_method)
        codes = (getattr(method, "__code__", None) for method in methods)
        return "".join(_code_text(code) for code in codes if code is not None)


def _code_text(code: CodeType) -> str:
    """What a function does, without where it is written; the same in every process."""
    constants = [_code_text(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {constants} {code.co_names}"


def call_kernel(
    address: int, arena: np.ndarray | None, columns: tuple[np.ndarray, ...], begin: int, end: int,
    cycles: np.ndarray | None = None,
) -> bool:  # fmt: skip
    """Call a kernel from Python; `cycles` makes it a counted one."""
    import ctypes

    n_pointers = 2 + (cycles is not None)
    kinds = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    kinds += [ctypes.c_void_p] * (n_pointers - 2)
    addresses = np.array([c.ctypes.data for c in columns], np.int64)
    base = 0 if arena is None else arena.ctypes.data
    arguments = [base, addresses.ctypes.data, begin, end]
    arguments += [] if cycles is None else [cycles.ctypes.data]
    return bool(ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(address)(*arguments))


def make_codelet(
    name: str, compute: FunctionSource, fields: tuple, base: VertexBase,
    host_compute: FunctionSource | None, **more: object,
) -> PythonCodelet:  # fmt: skip
    """A checked codelet from its parts."""
    result = analysis_of(name, compute, fields, base, host_compute)
    spec = CodeletSpec(
        name=name, fields=fields, base=base, returns_bool=result.returns_bool, language="python",
        n_instructions=result.n_instructions, routines=tuple(result.routines.items()),
        source=compute.source, draws_random=result.draws_random,
        rounds_to_half=result.rounds_to_half,
    )  # fmt: skip
    texts = {(Variant.RUN, False, N_WORKERS): result.kernel_text}
    return PythonCodelet(
        spec, compute, host_compute=host_compute, _texts=texts,
        **more,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip


def codelet_from_class(cls: type) -> PythonCodelet:
    """Analyse a Vertex class; every refusal names the user's line."""
    if not (isinstance(cls, type) and issubclass(cls, Vertex)):
        raise GraphObjectCreationError(
            f"{cls!r} is not a codelet: it is not a subclass of Vertex.",
            hint="derive it from Vertex, MultiVertex or SupervisorVertex",
        )
    source = getattr(cls, "_tremula_source", None)
    function = getattr(cls, "compute", None)
    if not callable(function) or not hasattr(function, "__code__"):
        raise GraphObjectCreationError(
            f"codelet {cls.__name__} has no compute method.",
            source=source,
            hint="write def compute(self): in the class",
        )
    name = str(cls.__dict__.get("name", cls.__name__))
    fields = fields_of(cls, source)  # pyright: ignore[reportArgumentType]
    compute = read_function(function, f"{cls.__name__}.compute")
    return make_codelet(
        name, compute, fields, base_of(cls), _host_compute_of(cls),
        provenance=_provenance(cls, compute),
        cost_method=getattr(cls, "cycles", None), flops_method=getattr(cls, "flops", None),
        bytes_method=getattr(cls, "field_data_bytes", None),
        instance_method=getattr(cls, "instance_bytes", None),
        strided_lists=getattr(cls, "strided_lists", ()),
        matrix_types=getattr(cls, "matrix_types", None), vertex_class=cls,
    )  # fmt: skip


def _host_compute_of(cls: type) -> FunctionSource | None:
    """The `compute_on_host` that belongs to a class's `compute`; a subclass may replace both."""
    for base in cls.__mro__:
        if "compute_on_host" in vars(base):
            return read_function(vars(base)["compute_on_host"], f"{cls.__name__}.compute_on_host")
        if "compute" in vars(base):
            return None
    return None


def _provenance(cls: type, compute: FunctionSource) -> Provenance:
    if hasattr(cls, "standing"):
        raise compute.error("a cost has no `standing`", None, "it is called `provenance`")
    provenance = getattr(cls, "provenance", Provenance.DERIVED)
    known = [s.value for s in Provenance]
    if isinstance(provenance, Provenance):
        return provenance
    if provenance not in known:
        raise compute.error(
            f"unknown provenance {provenance!r}", None, suggest(str(provenance), known)
        )
    return Provenance(provenance)


def codelet_of(cls: type) -> PythonCodelet:
    """The codelet a Vertex class describes; analysed once per class."""
    result = cls.__dict__.get("_tremula_codelet")
    if result is None:
        result = codelet_from_class(cls)
        cls._tremula_codelet = result
    return result


def python_codelet_from_dict(stored: Mapping[str, object]) -> PythonCodelet:
    """The codelet that `to_dict` described; anything unexpected is an error."""
    parts = read_codelet(stored)
    try:
        return make_codelet(
            parts.name, parts.compute, parts.fields, parts.base, parts.host_compute,
            provenance=parts.provenance, has_stored_cost=parts.has_cost,
        )  # fmt: skip
    except PoplarError as error:
        raise refused(error.what) from None
    except DAMAGES as error:
        raise refused(f"{type(error).__name__}: {error}") from None
