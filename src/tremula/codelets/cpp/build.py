"""Units → shared objects: compiled in parallel, cached by content, safe between processes."""

import ctypes
import hashlib
import json
import os
import re
import tempfile
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tremula.base.code_fingerprint import code_fingerprint
from tremula.base.errors import GraphProgramCompilationError, LinkError, PoplarError
from tremula.base.processes import fork_safe
from tremula.base.source import Source, source_at
from tremula.base.storage.atomic_file import atomic_file
from tremula.base.storage.cache_dir import cache_dir
from tremula.base.storage.checked_file import is_usable, write_checked
from tremula.base.storage.strict_json import JsonObject
from tremula.codelets.cpp.counting import COUNTED_FLAGS, count_blocks, counter_source
from tremula.codelets.cpp.glue import GluedUnit, glue
from tremula.codelets.cpp.names import vertex_name
from tremula.codelets.cpp.preprocess import Unit, without_markers
from tremula.codelets.cpp.scan import tokenise
from tremula.codelets.cpp.toolchain import (
    HEADERS,
    LANGUAGE_FLAGS,
    Compiler,
    checked_optimisation,
    compilation_error,
    find_compiler,
    headers_identity,
)
from tremula.codelets.spec import N_WORKERS

N_AT_ONCE = 96  # files of at most this many vertices are compiled whole, when they are loaded
N_LEAST, N_MOST = 4, 96  # kernels of a split library that one g++ process compiles
FORMAT = 1  # raise when glue changes what a shared object or table means
# No C++ run-time library, as on a tile: `new`, exceptions and streams are undefined symbols.
_LINK_FLAGS = (
    "-shared", "-nodefaultlibs", "-Wl,-z,defs", "-Wl,-z,muldefs", "-Wl,--no-demangle",
)  # fmt: skip
_LIBRARIES = ("-lm", "-lc", "-lgcc")
_UNDEFINED = re.compile(r"undefined reference to [`'\"]([^`'\"]+)['\"]")
_BAD_FIELD = re.compile(r"operator\(\)\(const char\*, F&\) \[with F = (.*)\]'")
_FIELD_PLACE = re.compile(r"tremula field (\w+):.*\[with V = (.*); Visit = ")
_libraries: dict[str, "Library"] = {}
_guard = fork_safe(threading.Lock())


def library_of(units: Sequence[Unit], optimise: str) -> "Library":
    """The library of these units: one object per content."""
    digest = hashlib.sha256(f"{FORMAT} {checked_optimisation(optimise)}".encode())
    for unit in units:
        digest.update(without_markers(unit.text).encode() + b"\0")
    key = digest.hexdigest()
    with _guard:
        if key not in _libraries:
            _libraries[key] = Library(tuple(units), optimise, key)
        return _libraries[key]


class Library:
    """Codelet files that are linked together, and the shared objects made of them.

    A library of many vertices is *split*: loading it only describes them, and kernels are compiled
    when they are first needed, those needed at once together, split across processors.
    Vertices that share static memory are always compiled together.
    """

    def __init__(self, units: tuple[Unit, ...], optimise: str, key: str):
        self.units, self.optimise, self.key = units, optimise, key
        self._lock = fork_safe(threading.RLock())
        self._glued: tuple[GluedUnit, ...] = ()
        self._loaded: dict[Path, ctypes.CDLL] = {}
        self._addresses: dict[tuple[_Variant, str], int] = {}

    @property
    def glued(self) -> tuple[GluedUnit, ...]:
        with self._lock:
            if not self._glued:
                prefix = self.key[:12]
                self._glued = tuple(glue(u, f"{prefix}_{i}") for i, u in enumerate(self.units))
            return self._glued

    @property
    def is_split(self) -> bool:
        n_vertices = sum(len(glued.candidates) for glued in self.glued)
        return n_vertices > N_AT_ONCE and not any(glued.has_statics for glued in self.glued)

    def table(self) -> list[JsonObject]:
        """What the compiler knows of every vertex: name, base, fields."""
        variant = _Variant(find_compiler(), False, N_WORKERS)
        path = self._path(variant).with_suffix(".json")
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError):  # none yet, or damaged
            table = self._read_table(variant)
        with atomic_file(path, "w") as file:
            json.dump(table, file)
        return table

    def prepare(
        self, symbols: Iterable[str], *, is_counted: bool, n_workers: int = N_WORKERS
    ) -> None:
        """Compile and load the kernels of these vertices, unless it was done before."""
        variant = _Variant(find_compiler(), is_counted, n_workers)
        with self._lock:
            wanted = [s for s in dict.fromkeys(symbols) if (variant, s) not in self._addresses]
            if not wanted:
                return
            files = self._split_files(wanted, variant) if self.is_split else {}
            if not self.is_split and not is_usable(self._path(variant)):
                self._keep(self._path(variant), self._build_whole(variant))
            for symbol in wanted:
                path = self._path(variant)
                loaded = self._load(path.with_name(files.get(symbol, path.name)))
                address = ctypes.cast(getattr(loaded, symbol), ctypes.c_void_p).value
                assert address is not None
                self._addresses[variant, symbol] = address

    def address(self, symbol: str, *, is_counted: bool, n_workers: int = N_WORKERS) -> int:
        """Address of a kernel; builds and loads the shared object on first use."""
        self.prepare([symbol], is_counted=is_counted, n_workers=n_workers)
        return self._addresses[_Variant(find_compiler(), is_counted, n_workers), symbol]

    # -- what is there, and where ------------------------------------------------------------------

    def _path(self, variant: "_Variant") -> Path:
        native = "" if variant.is_counted else variant.compiler.native_identity
        ours = (code_fingerprint("codelets/cpp"), headers_identity())
        parts = (self.key, variant.compiler.identity, native, *ours)
        text = "\n".join((*parts, str(variant.n_workers)))
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        return cache_dir() / "cpp" / f"{digest}{'-counted' if variant.is_counted else ''}.so"

    def _files(self, variant: "_Variant") -> dict[str, str]:
        """The file each kernel of a split unit is in, as far as they were compiled."""
        path = self._path(variant).with_suffix(".kernels.json")
        try:
            files = json.loads(path.read_text())
        except (OSError, ValueError):  # none yet, or damaged
            return {}
        return {s: f for s, f in files.items() if is_usable(path.with_name(f))}

    def _load(self, path: Path) -> ctypes.CDLL:
        if path not in self._loaded:
            self._loaded[path] = ctypes.CDLL(str(path))
        return self._loaded[path]

    def _keep(self, path: Path, built: bytes) -> None:
        write_checked(path, built)

    # -- compiling ---------------------------------------------------------------------------------

    def _build_whole(self, variant: "_Variant") -> bytes:
        return self._build([(glued, glued.whole()) for glued in self.glued], variant)

    def _split_files(self, symbols: list[str], variant: "_Variant") -> dict[str, str]:
        """The file of each kernel; those that no file has are compiled into a new one."""
        files = self._files(variant)
        missing = sorted(set(symbols) - files.keys())
        if missing:
            digest = hashlib.sha256(" ".join(missing).encode()).hexdigest()[:16]
            path = self._path(variant).with_name(f"{self._path(variant).stem}-{digest}.so")
            self._keep(path, self._build(self._texts_with(set(missing)), variant))
            files |= dict.fromkeys(missing, path.name)
            with atomic_file(self._path(variant).with_suffix(".kernels.json"), "w") as file:
                json.dump(files, file)
        return files

    def _texts_with(self, symbols: set[str]) -> list[tuple[GluedUnit, str]]:
        """What to compile to have these kernels, and all that they may call."""
        texts = []
        for glued in self.glued:
            wanted = [i for i in range(len(glued.candidates)) if glued.symbol(i) in symbols]
            parts = _shared_out(wanted)
            texts += [(glued, glued.kernels(part)) for part in parts] or [(glued, glued.text)]
        return texts

    def _build(self, texts: list[tuple[GluedUnit, str]], variant: "_Variant") -> bytes:
        """A shared object of texts, each compiled by a separate process."""
        compiler = variant.compiler
        flags = [*LANGUAGE_FLAGS, f"-I{HEADERS}", f"-DTREMULA_N_WORKERS={variant.n_workers}"]
        if variant.is_counted:
            compile_one = partial(_compile_counted, [*flags, *COUNTED_FLAGS])
        elif variant.is_description:
            compile_one = partial(_compile, [*flags, "-O0"])
        else:
            compile_one = partial(_compile, [*flags, self.optimise, *compiler.native_flags])
        with tempfile.TemporaryDirectory(prefix="tremula-") as folder:
            objects = [Path(folder) / f"{i}.o" for i in range(len(texts))]
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                counts = pool.map(
                    lambda job: compile_one(compiler, *job),
                    (
                        (glued, text, made)
                        for (glued, text), made in zip(texts, objects, strict=True)
                    ),
                )
                all_counts = set().union(*counts)
            if variant.is_counted:
                objects.append(Path(folder) / "counter.o")
                arguments = [*LANGUAGE_FLAGS, "-O2", "-c", "-x", "c++", "-", "-o", str(objects[-1])]
                _checked(compiler, arguments, counter_source(all_counts))
            output = Path(folder) / "library.so"
            self._link(compiler, objects, output)
            return output.read_bytes()

    def _link(self, compiler: Compiler, objects: Sequence[Path], output: Path) -> None:
        arguments = [*_LINK_FLAGS, *map(str, objects), *_LIBRARIES, "-o", str(output)]
        done = compiler.run(arguments)
        if done.returncode == 0:
            return
        symbols = list(dict.fromkeys(_UNDEFINED.findall(done.stderr)))
        if not symbols:
            raise LinkError(
                f"the codelets of {', '.join(unit.file for unit in self.units)} do not link: "
                f"{done.stderr.strip()[:500]}",
                hint="look for two files that define the same symbol",
            )
        raise self._undefined(symbols) from RuntimeError(done.stderr)

    def _undefined(self, symbols: list[str]) -> LinkError:
        files = ", ".join(unit.file for unit in self.units)
        hint = self._companion_of(symbols[0])
        if symbols[0].startswith("_Zn"):
            hint = "tiles have no heap: use a state Vector, an InOut edge or a static array"
        elif symbols[0].startswith(("_ZNSt", "_ZSt", "__cxa", "_ZNKSt")):
            hint = "tiles have no C++ run-time library: no streams, strings or exceptions"
        more = f" (and {len(symbols) - 1} more)" if len(symbols) > 1 else ""
        return LinkError(
            f"undefined symbol {symbols[0]}{more} in {files}",
            source=self._place_of(symbols[0]),
            hint=hint,
        )

    def _companion_of(self, symbol: str) -> str:
        """Which file to give, too: one next to these that defines the symbol, if there is one."""
        sources = [Path(unit.file) for unit in self.units if Path(unit.file).is_file()]
        names = "|".join(map(re.escape, sorted(_words_of(symbol)))) or re.escape(symbol)
        definition = re.compile(rf"\b(?:{names})\s*\([^;{{}}]*\)[^;{{}}]*{{")
        beside = sorted({f for path in sources for f in path.resolve().parent.glob("*.c*")})
        for file in beside:
            is_given = any(file == path.resolve() for path in sources)
            if not is_given and definition.search(file.read_text(errors="replace")):
                both = f"[{sources[0].name!r}, {file.name!r}]"
                return f"{file.name} beside it defines it: add_codelets({both})"
        return "give the file that defines it together with this one: add_codelets([file, other])"

    def _place_of(self, symbol: str) -> Source | None:
        """The first line that names an undefined symbol."""
        words = _words_of(symbol)
        wanted = {"new"} if symbol.startswith("_Zn") else words or {symbol}
        for unit in self.units:
            for token in tokenise(unit.text, unit.file):
                if token.text in wanted and token.text != "std":
                    return source_at(token.file, token.line)
        return None

    def _read_table(self, variant: "_Variant") -> list[JsonObject]:
        """Descriptions from a library with all kernels, or of a split one from one without."""
        if not self.is_split:
            with self._lock:
                if not is_usable(self._path(variant)):
                    self._keep(self._path(variant), self._build_whole(variant))
                return self._described(self._load(self._path(variant)), 1)
        n_parts = os.cpu_count() or 1
        texts = [(g, g.description(i, n_parts)) for g in self.glued for i in range(n_parts)]
        built = self._build(texts, replace(variant, is_description=True))
        with tempfile.NamedTemporaryFile(prefix="tremula-", suffix=".so") as file:
            file.write(built)
            file.flush()
            return self._described(ctypes.CDLL(file.name), n_parts)

    def _described(self, loaded: ctypes.CDLL, n_parts: int) -> list[JsonObject]:
        table: list[JsonObject] = []
        for n, glued in enumerate(self.glued):
            lines: list[str] = []
            emit = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(
                lambda line, to=lines: to.append(line.decode(errors="replace"))
            )
            for part in range(n_parts):
                getattr(loaded, glued.describer(part))(emit)
            table += [entry | {"unit": n} for entry in _entries(lines)]
        return sorted(table, key=lambda entry: (entry["unit"], entry["index"]))


@dataclass(frozen=True, slots=True)
class _Variant:
    """How kernels are compiled."""

    compiler: Compiler
    is_counted: bool
    n_workers: int
    is_description: bool = False


def _shared_out(indices: list[int]) -> list[list[int]]:
    """Parts for processes: as many as processors, unless they would be tiny or huge."""
    if not indices:
        return []
    n_parts = max(1, min(os.cpu_count() or 1, -(-len(indices) // N_LEAST)))
    n_parts = max(n_parts, -(-len(indices) // N_MOST))
    return [indices[part::n_parts] for part in range(n_parts)]


def _words_of(symbol: str) -> set[str]:
    """The names in a mangled symbol."""
    lengths = re.finditer(r"(?=(\d+)([A-Za-z_]\w*))", symbol)
    return {m[2][: int(m[1])] for m in lengths if int(m[1]) <= len(m[2])}


def _entries(lines: Iterable[str]) -> list[JsonObject]:
    """Parse what glue emits: a vertex line, then its field lines."""
    entries: list[JsonObject] = []
    fields: list[JsonObject] = []
    for kind, *values in (line.split("\t") for line in lines):
        if kind == "vertex":
            fields = []
            index, pretty, base, returns_bool = values
            name = vertex_name(pretty.partition("[with V = ")[2].rpartition("]")[0])
            entries.append(
                {"index": int(index), "name": name, "base": base,
                 "returns_bool": returns_bool == "1", "fields": fields}
            )  # fmt: skip
        else:
            keys = ("name", "kind", "direction", "type", "layout", "min_align", "is_interleaved",
                    "is_const")  # fmt: skip
            field: JsonObject = dict(zip(keys, values, strict=True))
            field["min_align"] = int(values[5])
            field["is_interleaved"], field["is_const"] = values[6] == "1", values[7] == "1"
            fields.append(field)
    return entries


def _compile(
    flags: list[str], compiler: Compiler, glued: GluedUnit, text: str, output: Path
) -> set[int]:
    _checked(compiler, [*flags, "-c", "-x", "c++", "-", "-o", str(output)], text, glued)
    return set()


def _compile_counted(
    flags: list[str], compiler: Compiler, glued: GluedUnit, text: str, output: Path
) -> set[int]:
    """Compile with counting; not for this processor, so that counts vary less between hosts."""
    assembly = _checked(compiler, [*flags, "-S", "-x", "c++", "-", "-o", "-"], text, glued)
    rewritten, counts = count_blocks(assembly)
    _checked(compiler, ["-c", "-x", "assembler", "-", "-o", str(output)], rewritten, glued)
    return counts


def _checked(
    compiler: Compiler, arguments: Sequence[str], text: str, glued: GluedUnit | None = None
) -> str:
    done = compiler.run(arguments, text)
    if done.returncode == 0:
        return done.stdout
    error = _field_error(done.stderr, glued) if glued else None
    what = glued.unit.file if glued else "generated code"
    raise (error or compilation_error(done.stderr, what)) from RuntimeError(done.stderr)


def _field_error(stderr: str, glued: GluedUnit) -> PoplarError | None:
    """The error for a field of a type that vertices cannot have, if that is the failure."""
    if "TREMULA-FIELD" not in stderr:
        return None
    bad, place = _BAD_FIELD.search(stderr), _FIELD_PLACE.search(stderr)
    if bad is None or place is None:
        return None
    vertex, field = vertex_name(place[2]), place[1]
    class_name = vertex.partition("<")[0].rpartition("::")[2]
    members = [m for c in glued.candidates if c.shape.name == class_name for m in c.members]
    return unsupported_field(
        vertex, field, bad[1], next((m.source for m in members if m.name == field), None)
    )


def unsupported_field(
    vertex: str, field: str, type_text: str, source: Source | None
) -> PoplarError:
    return GraphProgramCompilationError(
        f"Field '{vertex}.{field}' has unsupported field type '{type_text}'",
        source=source,
        hint="fields are numbers, Input/Output/InOut of a number, Vector or VectorList, or a Vector"
        " of those; keep anything else in a static member or behind an edge of chars",
    )
