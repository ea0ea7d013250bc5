"""Write the modules of a public package that only redirect to code in tremula.frontends.

    python tools/redirect_modules.py popxl_addons          # writes src/popxl_addons
    python tools/redirect_modules.py --check popxl_addons  # says which files differ

`tools/redirects/NAME.txt` is the table: a line for each module, below it where its names come from.
A name that is also that of a module inside is imported from there, after that module: importing the
module later does not hide the name.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOTE = "Names only, made by tools/redirect_modules.py; code is in tremula.frontends."
TABLES = ROOT / "tools" / "redirects"


@dataclass
class Module:
    """A module of the table: what it is for, and names by source; sources inside begin with `.`"""

    name: str
    purpose: str
    sources: dict[str, list[str]] = field(default_factory=dict)


def read_table(package: str) -> dict[str, Module]:
    """The modules of a package, with `*` replaced by the names it means."""
    modules: dict[str, Module] = {}
    current = Module("", "")
    for line in (TABLES / f"{package}.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, _, rest = line.partition(": ")
        if line.startswith(" "):
            current.sources[name.strip()] = rest.split()
        else:
            current = modules[name] = Module(name, rest.strip())
    for module in modules.values():
        _expand(module, modules)
    return modules


def _expand(module: Module, modules: dict[str, Module]) -> list[str]:
    """All names of a module; those of `*` from the modules inside."""
    seen: set[str] = set()
    for source, names in module.sources.items():
        if names == ["*"]:
            names = _expand(modules[module.name + source], modules)
        module.sources[source] = sorted(set(names) - seen)
        seen.update(names)
    return sorted(seen)


def texts(package: str) -> dict[Path, str]:
    """The text of each file of a package, below src."""
    modules = read_table(package)
    result = {}
    for name, module in modules.items():
        inside = [m.removeprefix(f"{name}.") for m in modules if m.startswith(f"{name}.")]
        children = [child for child in inside if "." not in child]
        path = Path(*name.split("."))
        file = path / "__init__.py" if children else path.with_suffix(".py")
        result[file] = _text(module, children)
    return result


def _text(module: Module, children: list[str]) -> str:
    lines = [f'"""{module.purpose}', "", NOTE, '"""', ""]
    names: set[str] = set()
    package = module.name.split(".", maxsplit=1)[0]
    outside = {s: n for s, n in module.sources.items() if not s.startswith(".") and n}
    for source, chosen in sorted(outside.items()):
        lines += _imports(f"tremula.frontends.{package}.{source}", chosen)
        names.update(chosen)
    inside = {s: n for s, n in module.sources.items() if s.startswith(".") and n}
    others = sorted(c for c in children if f".{c}" not in inside)
    if outside and children:
        lines.append("")
    if others:
        lines += _imports(".", others)
        names.update(others)
    for source, chosen in sorted(inside.items()):
        lines += _imports(source, chosen)
        names.update(chosen)
    names.update(children)
    listed = "".join(f'    "{name}",\n' for name in sorted(names))
    return "\n".join([*lines, "", f"__all__ = [\n{listed}]\n"])


def _imports(source: str, names: list[str]) -> list[str]:
    lines = [f"    {name}," for name in sorted(names, key=_order)]
    return [f"from {source} import (", *lines, ")"]


def _order(name: str) -> tuple[int, str]:
    """Constants, classes, functions, as the formatter sorts imports."""
    return 0 if name.isupper() else 1 if name[0].isupper() else 2, name.lower()


def main(arguments: list[str]) -> int:
    """Write the files of packages, or with --check say which differ."""
    only_check = "--check" in arguments
    differing = []
    for package in [a for a in arguments if not a.startswith("-")]:
        expected = texts(package)
        files = {p.relative_to(ROOT / "src") for p in (ROOT / "src" / package).rglob("*.py")}
        for file in sorted(files - set(expected)):
            differing.append(file)
            if not only_check:
                (ROOT / "src" / file).unlink()
        for file, text in expected.items():
            path = ROOT / "src" / file
            if path.exists() and path.read_text() == text:
                continue
            differing.append(file)
            if not only_check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    for file in differing:
        print(file)
    return int(only_check and bool(differing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
