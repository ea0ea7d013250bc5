"""Units → C++ text with glue: field visitors, a description of every vertex, and its kernels."""

from collections.abc import Sequence
from dataclasses import dataclass

from tremula.codelets.cpp.preprocess import Unit
from tremula.codelets.cpp.scan import ClassShape, Member, Shapes, scan

_KERNEL_ARGUMENTS = (
    "std::uint8_t *arena, const std::int64_t *columns, std::int64_t begin, std::int64_t end"
)


@dataclass(frozen=True, slots=True)
class VertexCandidate:
    """A class that may be a vertex; the compiler decides."""

    type_text: str  # how glue names it
    shape: ClassShape
    members: tuple[Member, ...]  # of all its specialisations and bases


@dataclass(frozen=True, slots=True)
class GluedUnit:
    """One unit with its candidates, and the texts to compile for some or all of them."""

    unit: Unit
    prefix: str  # makes symbols of several units differ
    candidates: tuple[VertexCandidate, ...]
    text: str  # the unit's, with a name for every candidate
    has_statics: bool  # vertices share memory: their kernels are compiled together

    def symbol(self, index: int) -> str:
        return f"tremula_kernel_{self.prefix}_{index}"

    def describer(self, part: int) -> str:
        return f"tremula_describe_{self.prefix}_{part}"

    def description(self, part: int, n_parts: int) -> str:
        """Text that describes every n-th candidate, without code to run it."""
        indices = range(part, len(self.candidates), n_parts)
        return self.text + _glue_text(self, indices, part, has_kernels=False)

    def kernels(self, indices: Sequence[int]) -> str:
        """Text with the kernels of some candidates."""
        return self.text + _glue_text(self, indices, None, has_kernels=True)

    def whole(self) -> str:
        """Text with the kernels and descriptions of all."""
        return self.text + _glue_text(self, range(len(self.candidates)), 0, has_kernels=True)


def glue(unit: Unit, prefix: str) -> GluedUnit:
    """Scan a unit and name what may be a vertex."""
    shapes = scan(unit.text, unit.file)
    text, candidates = _name_candidates(unit.text, shapes)
    return GluedUnit(unit, prefix, candidates, text, shapes.has_statics)


def _name_candidates(text: str, shapes: Shapes) -> tuple[str, tuple[VertexCandidate, ...]]:
    """Give every candidate a name that glue can use, by editing the text in place.

    An explicit instantiation becomes an alias: its arguments keep their scope, and only what
    glue uses is instantiated, so that many instantiations can be shared among processes.
    """
    edits: list[tuple[int, int, str]] = []
    candidates: list[VertexCandidate] = []
    for shape in shapes.classes:
        if shape.is_template or not shape.bases:
            continue
        members = tuple(_members_of(shape.name, shapes.classes))
        path = "::" + "::".join((*shape.scope, shape.name))
        if shape.specialisation:
            alias = f"tremula_v{len(candidates)}"
            edits.append((shape.end, shape.end, f" using {alias} = {shape.specialisation};"))
            path = "::" + "::".join((*shape.scope, alias))
        candidates.append(VertexCandidate(path, shape, members))
    for wanted in shapes.instantiations:
        shape = next((c for c in shapes.classes if c.name == wanted.class_name), None)
        if shape is None:
            continue
        alias = f"tremula_v{len(candidates)}"
        edits.append((wanted.start, wanted.end, f"using {alias} = {wanted.type_text}"))
        members = tuple(_members_of(shape.name, shapes.classes))
        candidates.append(VertexCandidate("::" + "::".join((*wanted.scope, alias)), shape, members))
    for start, end, replacement in sorted(edits, reverse=True):
        n_lines = text.count("\n", start, end)  # keep the user's line numbers
        text = text[:start] + replacement + "\n" * n_lines + text[end:]
    return text, tuple(candidates)


def _members_of(
    name: str, classes: Sequence[ClassShape], seen: frozenset[str] = frozenset()
) -> list[Member]:
    """Members a class of this name may have: its bases' first, then its own, in all versions."""
    result: dict[str, Member] = {}
    versions = [c for c in classes if c.name == name]
    for version in versions:
        for base in version.bases:
            if base not in seen and base != name:
                for member in _members_of(base, classes, seen | {name}):
                    result.setdefault(member.name, member)
    for version in versions:
        for member in version.members:
            result.setdefault(member.name, member)
    return list(result.values())


def _glue_text(
    glued: GluedUnit, indices: Sequence[int], described_as: int | None, *, has_kernels: bool
) -> str:
    used = [glued.candidates[i] for i in indices]
    names = sorted({m.name for c in used for m in c.members if m.is_plain})
    lines = ["", "#include <tremula/glue.hpp>", '# 1 "tremula glue"']
    lines += [f"TREMULA_HAS({name})" for name in names]
    visitors: dict[tuple[str, ...], str] = {}
    described: list[str] = []
    for i in indices:
        candidate = glued.candidates[i]
        fields = tuple(m.name for m in candidate.members if m.is_plain)
        if fields not in visitors:
            visitors[fields] = f"tremula_fields_{glued.prefix}_{indices[0]}_{len(visitors)}"
            lines += _visitor(visitors[fields], fields)
        if has_kernels:
            lines += _kernel(candidate, visitors[fields], glued.symbol(i), glued.has_statics)
        described.append(
            f"tremula::describe<{candidate.type_text}, {visitors[fields]}>({i}, emit);"
        )
    if described_as is not None:
        lines += _exported(f"void {glued.describer(described_as)}(tremula::Emit emit)", described)
    return "\n".join(lines) + "\n"


def _visitor(name: str, fields: Sequence[str]) -> list[str]:
    """A struct whose `each` shows every field to a visitor; line markers name fields in errors."""
    lines = [
        f"struct {name} {{ template <class V, class Visit> static void each(V &v, Visit &visit) {{"
    ]
    for field in fields:
        lines += [
            f'# 1 "tremula field {field}"',
            f'if constexpr (tremula_has_{field}<V>::value) visit("{field}", v.{field});',
        ]
    return [*lines, '# 1 "tremula glue"', "}};"]


def _kernel(candidate: VertexCandidate, visitor: str, symbol: str, has_statics: bool) -> list[str]:
    run = f"tremula::run_codelet<{candidate.type_text}, {visitor}, {str(has_statics).lower()}>"
    plain = f"return {run}(arena, columns, begin, end, nullptr);"
    counted = f"return {run}(arena, columns, begin, end, cycles);"
    return [
        "#ifdef TREMULA_COUNTED",
        *_exported(f"std::int64_t {symbol}({_KERNEL_ARGUMENTS}, std::int64_t *cycles)", [counted]),
        "#else",
        *_exported(f"std::int64_t {symbol}({_KERNEL_ARGUMENTS})", [plain]),
        "#endif",
    ]


def _exported(head: str, body: list[str]) -> list[str]:
    return [f'extern "C" __attribute__((visibility("default"))) {head} {{', *body, "}"]
