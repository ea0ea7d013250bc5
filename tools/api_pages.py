"""The API pages docs/api/*.md, made from signatures and docstrings of everything public.

    python tools/api_pages.py            # writes the pages; `make docs` does

A name is public if one of the packages below exports it. One without a docstring is an error.
"""

import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "api"
_MAX_SIGNATURE_CHARS = 90


@dataclass(frozen=True)
class Package:
    module: str
    about: str

    @property
    def page(self) -> str:
        return f"{self.module.removeprefix('tremula.poplibs.')}.md"

    def names(self) -> list[str]:
        """Public names in alphabetical order, without sub-modules and Python's own."""
        module = import_module(self.module)
        exported = getattr(module, "__all__", None) or [n for n in dir(module) if n[0] != "_"]
        result = [n for n in exported if not inspect.ismodule(_value(module, n))]
        return sorted(result, key=str.lower)


PACKAGES = (
    Package("tremula", "Graphs, programs, codelets, devices, engines: what a tile program needs."),
    Package("tremula.poplibs.popops", "Element-wise operations, reductions, slices, sorting."),
    Package("tremula.poplibs.poplin", "Matrix products, convolutions, norms, solvers."),
    Package("tremula.poplibs.popnn", "Layers: non-linearities, norms, pooling, losses, cells."),
    Package("tremula.poplibs.poprand", "Random numbers, seeds, dropout."),
    Package(
        "tremula.poplibs.poputil", "Tile maps, regions and broadcasting, shared by operations."
    ),
    Package("tremula.poplibs.gcl", "Collectives between chips."),
    Package("poptorch", "The PopTorch API."),
    Package("poptorch.optim", "PopTorch's optimisers."),
    Package("popdist", "Several processes."),
    Package("popart", "The PopART API: builder, sessions, optimisers, options."),
    Package("pva", "Questions to a report file."),
    Package("libpvti", "Tracing the host."),
)


def _value(module: ModuleType, name: str) -> object:
    """A public thing; a package that stands in for a function of its name is that function."""
    value = getattr(module, name)
    return getattr(value, "__wrapped__", value) if inspect.ismodule(value) else value


def members_of(cls: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties a class defines itself, in the order they are written.

    Further spellings of the same methods are left out: docs/poplar-cpp.md has them.
    """
    spellings: frozenset[str] = vars(cls).get("cpp_spellings", frozenset())
    for name, member in vars(cls).items():
        if name in spellings:
            continue
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        # PyTorch adds a method to every class of optimisers that was used once.
        is_torch = (getattr(plain, "__module__", None) or "").startswith("torch.")
        is_member = inspect.isfunction(plain) or isinstance(plain, property)
        if name[0] != "_" and is_member and not is_torch:
            yield name, plain


def undocumented(package: Package) -> Iterator[str]:
    """Public names, and public methods of public classes, that say nothing about themselves."""
    module = import_module(package.module)
    for name in package.names():
        value = _value(module, name)
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        if not (vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__):
            yield f"{package.module}.{name}"
        if inspect.isclass(value) and _is_ours(value) and not issubclass(value, Enum):
            for member, function in members_of(value):
                if not inspect.getdoc(function) and not _is_explained_by_base(value, member):
                    yield f"{package.module}.{name}.{member}"


def _is_ours(cls: type) -> bool:
    ours = ("tremula", "poptorch", "popdist", "popart", "pva", "libpvti")
    return cls.__module__.split(".")[0] in ours


def _is_explained_by_base(cls: type, member: str) -> bool:
    return any(inspect.getdoc(getattr(base, member, None)) for base in cls.__mro__[1:])


# -- pages -----------------------------------------------------------------------------------------


def page_of(package: Package) -> str:
    module = import_module(package.module)
    lines = [
        f"# {package.module}",
        "",
        package.about,
        "",
        "Made from signatures and docstrings; `make docs` renews it.",
        "",
    ]
    for name in package.names():
        lines += _entry(name, _value(module, name))
    return "\n".join(lines).rstrip() + "\n"


def _entry(name: str, value: object) -> list[str]:
    if inspect.isclass(value):
        return _class_entry(name, value)
    if inspect.isroutine(value):
        return [f"## `{name}`", "", *_signature(name, value), *_text(inspect.getdoc(value))]
    return [f"## `{name}`", "", f"`{type(value).__name__}`: `{_short(value)}`", ""]


def _class_entry(name: str, cls: type) -> list[str]:
    lines = [f"## `{name}`", ""]
    if issubclass(cls, Enum):
        values = ", ".join(f"`{member.name}`" for member in cls)
        return [*lines, *_text(inspect.getdoc(cls)), f"Values: {values}.", ""]
    lines += _signature(name, cls) + _text(cls.__doc__ and inspect.cleandoc(cls.__doc__))
    if not _is_ours(cls):
        return lines
    rows = [_member_row(cls, member, function) for member, function in members_of(cls)]
    return [*lines, *rows, ""] if rows else lines


def _member_row(cls: type, name: str, member: object) -> str:
    doc = inspect.getdoc(member) or inspect.getdoc(getattr(cls, name)) or ""
    first = doc.split("\n\n")[0].replace("\n", " ")
    shown = name if isinstance(member, property) else f"{name}{_signature_text(member)}"
    return f"- `{shown}`: {first}"


def _signature(name: str, value: object) -> list[str]:
    text = f"{name}{_signature_text(value)}"
    return ["```text no-check", *_wrapped(text), "```", ""]


def _signature_text(value: object) -> str:
    try:
        signature = inspect.signature(value)  # pyright: ignore[reportArgumentType] - a callable
    except (TypeError, ValueError):  # built in C
        return "(…)"
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    bare = [p.replace(annotation=inspect.Parameter.empty, default=_shown(p)) for p in parameters]
    shown = signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)
    return str(shown)


class _Shown:
    """A default value whose text is the same on every machine."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _shown(parameter: inspect.Parameter) -> object:
    default = parameter.default
    return default if default is inspect.Parameter.empty else _Shown(_short(default))


def _short(value: object) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    text = repr(value)
    return "…" if " at 0x" in text or len(text) > _MAX_SIGNATURE_CHARS else text


def _wrapped(text: str) -> list[str]:
    """A signature on one line, or one parameter a line."""
    if len(text) <= _MAX_SIGNATURE_CHARS:
        return [text]
    head, _, rest = text.partition("(")
    inner, depth, parts, part = rest[:-1], 0, [], ""
    for character in inner:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += character
    return [f"{head}(", *(f"    {p}," for p in [*parts, part.strip()]), ")"]


def _text(doc: str | None) -> list[str]:
    """A docstring as Markdown: indented examples stay as they are."""
    return [*(doc or "").splitlines(), ""]


def index() -> str:
    rows = [f"| [`{p.module}`]({p.page}) | {p.about} |" for p in PACKAGES]
    head = ["# API", "", "Every public name, from signatures and docstrings.", ""]
    return "\n".join([*head, "| package | what |", "|---|---|", *rows, ""])


def pages() -> dict[str, str]:
    return {"index.md": index()} | {package.page: page_of(package) for package in PACKAGES}


def main() -> int:
    missing = [name for package in PACKAGES for name in undocumented(package)]
    if missing:
        print("without a docstring:", *missing, sep="\n  ", file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
