"""`tremula codelets FILE`: list the codelets of a C++ or Python file, their fields and types.

`--template` prints a Python file that stands for a library of custom operations, to fill in.
"""

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from tremula.base.errors import GraphObjectCreationError, GraphObjectLoadError, PoplarError
from tremula.base.libraries.operation_template import template_of
from tremula.codelets.spec import CodeletSpec, FieldSpec
from tremula.commands.progress import progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="C++ files, or one Python file")
    parser.add_argument("--flags", default="", help="compile flags for C++: -I, -D and -O are used")
    parser.add_argument(
        "--template",
        action="store_true",
        help="print a Python file to fill in for the custom operations of C++ sources",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON record per codelet")


def run(args: argparse.Namespace) -> None:
    """Print the codelets of the files."""
    if args.template:
        print(template_of(_existing(args.files)), end="")
        return
    with progress("compiling"):
        specs = _python_specs(args.files) if args.files[0].endswith(".py") else _cpp_specs(args)
    if args.json:
        print(json.dumps([_record(spec) for spec in specs], indent=2))
    else:
        print("\n\n".join(_description(spec) for spec in specs))


def _existing(files: list[str]) -> list[str]:
    for file in files:
        if not Path(file).is_file():
            raise GraphObjectLoadError(
                f"source file {file!r} does not exist.", hint="give paths of C++ files"
            )
    return files


def _cpp_specs(args: argparse.Namespace) -> list[CodeletSpec]:
    from tremula.codelets.cpp import load_cpp_codelets

    try:
        return [codelet.spec for codelet in load_cpp_codelets(args.files, args.flags).values()]
    except PoplarError as error:
        if isinstance(error.__cause__, RuntimeError):  # what the compiler said, all of it
            print(str(error.__cause__).rstrip(), file=sys.stderr)
        raise


def _python_specs(files: list[str]) -> list[CodeletSpec]:
    from tremula.codelets.python_codelet import codelet_of
    from tremula.codelets.vertex import Vertex

    specs = []
    for file in files:
        module = _import(Path(file))
        for value in list(vars(module).values()):
            is_vertex = isinstance(value, type) and issubclass(value, Vertex)
            if is_vertex and value.__module__ == module.__name__ and hasattr(value, "compute"):
                specs.append(codelet_of(value).spec)
    if not specs:
        raise GraphObjectCreationError(
            f"no codelet found in {', '.join(files)}.",
            hint="derive a class with a compute method from tremula.Vertex",
        )
    return specs


def _import(path: Path) -> ModuleType:
    """Import a file by its path, under a name that cannot clash with an installed module."""
    name = f"tremula_codelets_of_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None or not path.is_file():
        raise GraphObjectLoadError(
            f"codelet file {str(path)!r} does not exist or is not a Python file.",
            hint="give the path of a .py, .cpp or .cxx file",
        )
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def _description(spec: CodeletSpec) -> str:
    """A codelet as a small table."""
    result = "bool" if spec.returns_bool else "void"
    lines = [f"{spec.name}: {spec.base.value}, compute returns {result}, {spec.language}"]
    if spec.source:
        lines.append(f"  at {spec.source}")
    lines += [f"  constraint {constraint}" for constraint in spec.constraints]
    rows = [_row(field) for field in spec.fields]
    widths = [max(len(row[i]) for row in rows) for i in range(4)] if rows else []
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        lines.append(("  " + "  ".join(cells) + "  " + row[4]).rstrip())
    return "\n".join(lines)


def _row(field: FieldSpec) -> tuple[str, str, str, str, str]:
    """Name, direction, kind, type, and notes."""
    direction = field.direction.value if field.direction else "const" if field.is_const else ""
    return field.name, direction, field.kind.value, str(field.type), ", ".join(_remarks(field))


def _remarks(field: FieldSpec) -> Iterable[str]:
    if "vector" in field.kind.value:
        yield field.layout
        if field.min_align > field.type.n_bytes:
            yield f"aligned to {field.min_align} bytes"
        if field.is_interleaved:
            yield "interleaved memory"


def _record(spec: CodeletSpec) -> dict[str, object]:
    fields = [
        {
            "name": field.name,
            "kind": field.kind.value,
            "direction": field.direction.value if field.direction else None,
            "type": str(field.type),
            "layout": field.layout,
            "min_align": field.min_align,
            "is_interleaved": field.is_interleaved,
            "is_const": field.is_const,
        }
        for field in spec.fields
    ]
    return {
        "name": spec.name,
        "base": spec.base.value,
        "returns_bool": spec.returns_bool,
        "language": spec.language,
        "n_instructions": spec.n_instructions,
        "constraints": list(spec.constraints),
        "source": str(spec.source) if spec.source else None,
        "fields": fields,
    }
