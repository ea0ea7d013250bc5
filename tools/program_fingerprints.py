"""Fingerprints of compiled programs: a refactoring must leave every one of them as it was.

    python tools/program_fingerprints.py record before.json    # in the old tree
    python tools/program_fingerprints.py record after.json     # in the new tree
    python tools/program_fingerprints.py compare before.json after.json

`compare` says which parts of a program differ: addresses, vertices, costs, … Recorded are every
executable that the examples, the samples of all PopLibs operations and the models of the PopTorch
figures compile (instructions, vertices, addresses, cycles and memory of every step), and the
modelled figures of `tremula validate`. Names of classes, lines of source and texts of codelets are
left out: they may change while the program stays the same.
"""

import argparse
import hashlib
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
# Fields that say where a program comes from, not what it is.
_NOT_CONTENT = frozenset("source sources codelet_forms options provenance standing".split())
# Fields, and keys of machines as TOML, that had another name when earlier records were made.
_FORMER_NAMES = {"provenance_cycles": "standing_cycles"}
_FORMER_KEYS = (' provenance = "', ' standing = "')
_ARGUMENTS = re.compile(r"^# Arguments when run as a test: (.*)$", re.MULTILINE)
# What a reader of a comparison asks for, each with the fields of an executable that make it up.
_PARTS = {
    "machine": "machine replication_factor".split(),
    "instructions": "names entries code step_of switch_cases n_loop_slots".split(),
    "addresses": "n_arena_bytes replica_index_byte worker_states_byte variables".split(),
    "steps": ["steps"],
    "copies": ["copies"],
    "vertices": ["compute_sets"],
    "values": ["initial_values"],
    "host": ["host"],
}
_ANALYSES = "exchanges liveness memory costs".split()
Program = dict[str, str]  # the digest of each part
_FIGURES = {"mnist": 60, "gpt2-small": 300, "resnet50": 300}  # names and limits in seconds


def fingerprint(value: object) -> str:
    """A digest of an executable's contents."""
    digest = hashlib.blake2b(digest_size=12)
    _feed(digest, value)
    return digest.hexdigest()


def fingerprints_of(executable: object) -> Program:
    """A digest of each part of an executable."""
    parts = {
        name: fingerprint([getattr(executable, field) for field in names])
        for name, names in _PARTS.items()
    }
    analysis = getattr(executable, "analysis")  # noqa: B009 - its type differs between trees
    return parts | {name: fingerprint(getattr(analysis, name)) for name in _ANALYSES}


def _feed(digest: "hashlib._Hash", value: object) -> None:
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).view(np.uint8).ravel().data)
    elif isinstance(value, Enum):
        digest.update(f"{value.name};".encode())
    elif is_dataclass(value) and not isinstance(value, type):
        names = {_FORMER_NAMES.get(f.name, f.name): f.name for f in fields(value) if f.init}
        for name in sorted(names.keys() - _NOT_CONTENT):
            digest.update(f"{name}=".encode())
            _feed(digest, getattr(value, names[name]))
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            digest.update(f"{key}:".encode())
            _feed(digest, value[key])
    elif isinstance(value, list | tuple):
        digest.update(f"[{len(value)}".encode())
        for item in value:
            _feed(digest, item)
    elif isinstance(value, str):
        digest.update(f"{value.replace(*_FORMER_KEYS)!r};".encode())
    else:
        digest.update(f"{value!r};".encode())


class _Compiled(Exception):
    """Enough is known: the program need not run."""


@contextmanager
def recorded(*, is_only_compiled: bool = False) -> Iterator[list[Program]]:
    """The fingerprints of everything compiled inside, in order."""
    import tremula

    home: ModuleType = sys.modules[tremula.compile_graph.__module__]
    compile_graph, result = home.compile_graph, []

    def compile_and_note(*args: object, **named: object) -> object:
        executable = compile_graph(*args, **named)
        result.append(fingerprints_of(executable))
        if is_only_compiled:
            raise _Compiled
        return executable

    _replace_everywhere(compile_graph, compile_and_note)
    try:
        yield result
    finally:  # modules imported meanwhile have the replacement, too
        _replace_everywhere(compile_and_note, compile_graph)


def _replace_everywhere(old: object, new: object) -> None:
    """Replace `compile_graph` in every module that has it under this name."""
    for module in list(sys.modules.values()):
        if getattr(module, "compile_graph", None) is old:
            module.compile_graph = new  # pyright: ignore[reportAttributeAccessIssue]


# -- what is compiled ------------------------------------------------------------------------------


def of_script(script: str, arguments: Iterable[str]) -> list[Program]:
    import tremula

    if hasattr(tremula, "install"):  # a tree of before: its `poptorch` is a folder of the path
        tremula.install()
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    with recorded() as result:
        runpy.run_path(script, run_name="__main__")
    return result


def of_operations(share: int = 0, n_shares: int = 1) -> dict[str, list[Program]]:
    """Every sample of every operation and type; or those of one share of the operations."""
    sys.path.insert(0, str(ROOT / "tests" / "poplibs"))
    import run_op

    from tremula.poplibs.registry import all_ops

    result = {}
    for name, op in list(all_ops().items())[share::n_shares]:
        with recorded(is_only_compiled=True) as matches:
            for type in op.types:
                random = np.random.default_rng(0)
                calls = [
                    run_op.Call(op.function, s.inputs, type, s.options, op.is_in_place)
                    for s in op.samples(type, random)
                ]
                for call in calls:
                    with suppress(_Compiled):
                        run_op.run_calls([call], is_strict=False)
        result[f"operation {name}"] = matches
    return result


def of_figure(kind: str) -> list[Program]:
    """The tile program of a model of `tremula bench poptorch`."""
    try:
        from benchmarks.poptorch import suite
    except ModuleNotFoundError:  # a tree of before benchmarks left the package
        from tremula.bench.poptorch import suite  # pyright: ignore[reportMissingImports]

    with recorded() as result:
        exec(suite._COMPILE.format(kind=kind, cache=""), {"__name__": "__main__"})
    return result


def of_validation() -> dict[str, list[str]]:
    """The modelled value of every sampled row of `tremula validate`."""
    from tremula.validate import GRID, PUBLISHED, every_nth, read_rows, validate

    rows = [row for path in (PUBLISHED, GRID) for row in every_nth(read_rows(path), 150)]
    checked = validate(rows, [], lambda *_: None).checked
    return {f"validate {i}": [repr(row)] for i, row in enumerate(checked)}


# -- recording and comparing -----------------------------------------------------------------------


def record(path: Path) -> None:
    result: dict[str, list[str]] = {}
    for script in sorted((ROOT / "examples").rglob("*.py")):
        if script.name.startswith("_") or script.parent.name == "data":
            continue
        name = str(script.relative_to(ROOT))
        match = _ARGUMENTS.search(script.read_text(encoding="utf-8"))
        result[name] = _in_process("script", str(script), *(match[1].split() if match else []))
    for kind in _FIGURES:
        result[f"figure {kind}"] = _in_process("figure", kind)
    result |= _in_process("operations")
    result |= _in_process("validation")
    path.write_text(json.dumps(result, indent=1))
    print(f"{sum(map(len, result.values()))} programs of {len(result)} sources in {path}")


def _in_process(*what: str) -> dict | list:
    """Each source in a separate process, so that nothing is shared or cached between them."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        done = subprocess.run(
            [sys.executable, __file__, "part", str(out), *what],
            cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if done.returncode or not out.exists():
            print(f"failed: {' '.join(what)}", file=sys.stderr)
            return {f"failed {what}": ["failed"]} if len(what) == 1 else ["failed"]
        print(" ".join(what), flush=True)
        return json.loads(out.read_text())


def part(out: Path, what: list[str]) -> None:
    result = {
        "script": lambda: of_script(what[1], what[2:]),
        "figure": lambda: of_figure(what[1]),
        "operations": lambda: of_operations(*map(int, what[1:])),
        "validation": of_validation,
    }[what[0]]()
    out.write_text(json.dumps(result))


def compare(before: Path, after: Path) -> int:
    """Print what differs; the exit code is 1 if anything does."""
    old, new = json.loads(before.read_text()), json.loads(after.read_text())
    missing = sorted(old.keys() ^ new.keys())
    differing = [name for name in sorted(old.keys() & new.keys()) if old[name] != new[name]]
    for name in missing:
        print(f"only in one of them: {name}")
    for name in differing:
        print(f"differs: {name}: {difference(old[name], new[name])}")
    n_equal = len(old.keys() & new.keys()) - len(differing)
    print(f"{n_equal} sources equal, {len(differing)} differ, {len(missing)} unpaired")
    return 1 if missing or differing else 0


def difference(old: list[Program] | list[str], new: list[Program] | list[str]) -> str:
    """How many programs differ, and in which of their parts."""
    pairs = [(a, b) for a, b in zip(old, new, strict=False) if a != b]
    parts = sorted({part for a, b in pairs for part in differing_parts(a, b)})
    count = f"{len(old)} programs, now {len(new)}; " if len(old) != len(new) else ""
    return f"{count}{len(pairs)} of {len(old)} in {', '.join(parts) or 'none'}"


def differing_parts(a: Program | str, b: Program | str) -> set[str]:
    """The names of the parts that differ; a modelled value is one."""
    if isinstance(a, str) or isinstance(b, str):
        return {"value"}
    return {part for part in a.keys() | b.keys() if a.get(part) != b.get(part)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["record", "compare", "part"])
    parser.add_argument("path", type=Path)
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if args.what == "compare":
        return compare(args.path, Path(args.rest[0]))
    if args.what == "record":
        record(args.path)
    else:
        part(args.path, args.rest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
