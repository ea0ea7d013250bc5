"""C++ codelets: loaded from files or text; spec, kernels, and form in a saved executable."""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tremula.base.errors import GraphObjectCreationError, MissingPerfEstimate
from tremula.base.provenance import Provenance
from tremula.base.source import source_at
from tremula.base.storage.strict_json import JsonObject
from tremula.base.types import as_type
from tremula.codelets.cpp.build import Library, library_of, unsupported_field
from tremula.codelets.cpp.glue import VertexCandidate
from tremula.codelets.cpp.preprocess import Unit, preprocess, read_source
from tremula.codelets.cpp.toolchain import find_compiler, parse_flags
from tremula.codelets.flops import vector_flops_per_cycle
from tremula.codelets.spec import (
    N_WORKERS,
    Codelet,
    CodeletSpec,
    CostInput,
    Direction,
    FieldKind,
    FieldSpec,
    VertexBase,
)

if TYPE_CHECKING:
    from tremula.hardware import Chip


@dataclass(frozen=True, slots=True, eq=False)
class CppCodelet:
    """One vertex class of a library of C++ files. Implements `tremula.codelets.spec.Codelet`."""

    spec: CodeletSpec
    library: Library
    symbol: str

    @property
    def provenance(self) -> Provenance:
        # The host's instructions stand in for the tile's.
        return Provenance.PLACEHOLDER

    @property
    def is_data_dependent(self) -> bool:
        return True

    def kernel_address(
        self,
        *,
        has_modes: bool = False,  # noqa: ARG002 (of the protocol)
        n_workers: int = N_WORKERS,
    ) -> int:
        return self.library.address(self.symbol, is_counted=False, n_workers=n_workers)

    def counted_kernel_address(
        self,
        *,
        has_modes: bool = False,  # noqa: ARG002 (of the protocol)
        n_workers: int = N_WORKERS,
    ) -> int:
        return self.library.address(self.symbol, is_counted=True, n_workers=n_workers)

    def cycles(self, cost_input: CostInput) -> NoReturn:  # noqa: ARG002 (of the protocol)
        raise MissingPerfEstimate(
            f"C++ codelet {self.spec.name!r} has no cost that is known before it runs.",
            source=self.spec.source,
            hint="run once with profiling, which counts its instructions, or give the vertex"
            " set_perf_estimate(…) or register_perf_estimator(…)",
        )

    def flops(self, cost_input: CostInput) -> None:  # noqa: ARG002 (of the protocol)
        return None

    def field_data_bytes(self, cost_input: CostInput) -> None:  # noqa: ARG002 (of the protocol)
        return None

    def instance_bytes(self, cost_input: CostInput) -> None:  # noqa: ARG002 (of the protocol)
        return None

    @property
    def strided_lists(self) -> tuple[str, ...]:
        return ()

    def peak_flops_per_cycle(self, chip: "Chip") -> int:
        return vector_flops_per_cycle(self.spec, chip)

    def to_dict(self) -> dict[str, object]:
        return {
            "language": "c++",
            "spec": _spec_to_dict(self.spec),
            "symbol": self.symbol,
            "optimise": self.library.optimise,
            "units": [asdict(unit) for unit in self.library.units],
        }

    def content_hash(self) -> str:
        return hashlib.sha256(f"{self.library.key} {self.symbol}".encode()).hexdigest()


def cpp_codelet_from_dict(data: JsonObject) -> CppCodelet:
    """Undo `to_dict`. Nothing is compiled or run until a kernel is needed."""
    units = [Unit(**unit) for unit in data["units"]]
    library = library_of(units, data["optimise"])
    return CppCodelet(_spec_from_dict(data["spec"]), library, data["symbol"])


def field_from_dict(data: JsonObject) -> FieldSpec:
    """A field from its table entry."""
    return FieldSpec(
        name=data["name"],
        kind=FieldKind[data["kind"]],
        type=as_type(data["type"]),
        direction=Direction(data["direction"]) if data["direction"] else None,
        layout=data["layout"],
        min_align=data["min_align"],
        is_interleaved=data["is_interleaved"],
        is_const=data["is_const"],
    )


def field_to_dict(field: FieldSpec) -> dict[str, object]:
    return {
        "name": field.name,
        "kind": field.kind.name,
        "type": field.type.name,
        "direction": field.direction.value if field.direction else "",
        "layout": field.layout,
        "min_align": field.min_align,
        "is_interleaved": field.is_interleaved,
        "is_const": field.is_const,
    }


def _spec_to_dict(spec: CodeletSpec) -> dict[str, object]:
    return {
        "name": spec.name,
        "fields": [field_to_dict(f) for f in spec.fields],
        "base": spec.base.name,
        "returns_bool": spec.returns_bool,
        "n_instructions": spec.n_instructions,
        "constraints": list(spec.constraints),
        "source": [spec.source.file, spec.source.line] if spec.source else None,
    }


def _spec_from_dict(data: JsonObject) -> CodeletSpec:
    return CodeletSpec(
        name=data["name"],
        fields=tuple(field_from_dict(f) for f in data["fields"]),
        base=VertexBase[data["base"]],
        returns_bool=data["returns_bool"],
        language="c++",
        n_instructions=_n_instructions(data),
        constraints=tuple(data["constraints"]),
        source=source_at(*data["source"]) if data["source"] else None,
    )


def _n_instructions(data: JsonObject) -> int:
    """Instructions of a stored codelet; files before 0.2 gave bytes, four for each."""
    return data["n_instructions"] if "n_instructions" in data else data["n_code_bytes"] // 4


def prepare_kernels(codelets: Iterable[Codelet], *, is_counted: bool, n_workers: int) -> None:
    """Compile the kernels of all C++ codelets among these together, not one after another."""
    symbols: dict[Library, list[str]] = {}
    for codelet in codelets:
        if isinstance(codelet, CppCodelet):
            symbols.setdefault(codelet.library, []).append(codelet.symbol)
    for library, of_library in symbols.items():
        library.prepare(of_library, is_counted=is_counted, n_workers=n_workers)


# -- Codelet files or source text → codelets, by name ----------------------------------------------


INSTRUCTIONS_PER_TOKEN = 1  # of code on a tile, about, for each token of C++
ENTRY_INSTRUCTIONS = 4  # to enter and leave a vertex


def load_cpp_codelets(
    paths_or_source: str | Path | Iterable[str | Path], flags: str = ""
) -> dict[str, CppCodelet]:
    """Compile codelets and read their fields.

    `paths_or_source` is a path, several paths (linked together), or source text (anything with a
    line break or a brace). Of `flags`, -I, -D and -O are used. Raises GraphObjectLoadError,
    GraphProgramCompilationError or LinkError.
    """
    items = [paths_or_source] if isinstance(paths_or_source, str | Path) else list(paths_or_source)
    compiler, user_flags = find_compiler(), parse_flags(flags)
    units = []
    for item in items:
        is_text = isinstance(item, str) and ("\n" in item or "{" in item)
        path = None if is_text else read_source(Path(item))
        units.append(preprocess(path, str(item), user_flags, compiler))
    library = library_of(units, user_flags.optimise)
    codelets: dict[str, CppCodelet] = {}
    for entry in library.table():
        codelet = _codelet(library, entry)
        codelets.setdefault(codelet.spec.name, codelet)
    if not codelets:
        raise GraphObjectCreationError(
            f"no codelet found in {', '.join(u.file for u in units)}.",
            hint="derive a class with compute() from poplar::Vertex or poplar::MultiVertex, and"
            " instantiate templates explicitly: template class MyVertex<float>;",
        )
    return codelets


def _codelet(library: Library, entry: JsonObject) -> CppCodelet:
    glued = library.glued[entry["unit"]]
    candidate = glued.candidates[entry["index"]]
    _check_declarators(entry["name"], candidate)
    spec = CodeletSpec(
        name=entry["name"],
        fields=tuple(field_from_dict(f) for f in entry["fields"]),
        base=VertexBase[entry["base"]],
        returns_bool=entry["returns_bool"],
        language="c++",
        n_instructions=ENTRY_INSTRUCTIONS + INSTRUCTIONS_PER_TOKEN * candidate.shape.n_code_tokens,
        constraints=candidate.shape.constraints,
        source=candidate.shape.source,
    )
    return CppCodelet(spec, library, glued.symbol(entry["index"]))


def _check_declarators(name: str, candidate: VertexCandidate) -> None:
    """Refuse references and bit-fields, which generated code cannot even name."""
    for member in candidate.members:
        if not member.is_plain:
            raise unsupported_field(name, member.name, member.type_text, member.source)
