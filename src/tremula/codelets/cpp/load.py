"""Codelet files or source text → codelets, by name."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tremula.base.errors import GraphObjectCreationError
from tremula.codelets.cpp.build import Library, library_of, unsupported_field
from tremula.codelets.cpp.codelet import CppCodelet, field_from_dict
from tremula.codelets.cpp.glue import Candidate
from tremula.codelets.cpp.preprocess import preprocess, read_source
from tremula.codelets.cpp.toolchain import find_compiler, parse_flags
from tremula.codelets.spec import CodeletSpec, VertexBase

N_BYTES_PER_TOKEN = 4  # of code on a tile: about one instruction per token of C++
N_BYTES_ENTRY = 16  # to enter and leave a vertex


def load_cpp_codelets(
    paths_or_source: str | Path | Iterable[str | Path], flags: str = ""
) -> dict[str, CppCodelet]:
    """Compile codelets and read their fields.

    `paths_or_source` is a path, several paths (linked together), or source text (anything with a
    line break or a brace). Of `flags`, -I, -D and -O are used. Raises GraphObjectLoadError,
    GraphProgramCompilationError or LinkError.
    """
    given = [paths_or_source] if isinstance(paths_or_source, str | Path) else list(paths_or_source)
    compiler, kept = find_compiler(), parse_flags(flags)
    units = []
    for item in given:
        is_text = isinstance(item, str) and ("\n" in item or "{" in item)
        path = None if is_text else read_source(Path(item))
        units.append(preprocess(path, str(item), kept, compiler))
    library = library_of(units, kept.optimise)
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


def _codelet(library: Library, entry: dict[str, Any]) -> CppCodelet:
    glued = library.glued[entry["unit"]]
    candidate = glued.candidates[entry["index"]]
    _check_declarators(entry["name"], candidate)
    spec = CodeletSpec(
        name=entry["name"],
        fields=tuple(field_from_dict(f) for f in entry["fields"]),
        base=VertexBase[entry["base"]],
        returns_bool=entry["returns_bool"],
        language="c++",
        n_code_bytes=N_BYTES_ENTRY + N_BYTES_PER_TOKEN * candidate.shape.n_code_tokens,
        constraints=candidate.shape.constraints,
        source=candidate.shape.source,
    )
    return CppCodelet(spec, library, glued.symbol(entry["index"]))


def _check_declarators(name: str, candidate: Candidate) -> None:
    """Refuse references and bit-fields, which generated code cannot even name."""
    for member in candidate.members:
        if not member.is_plain:
            raise unsupported_field(name, member.name, member.type_text, member.source)
