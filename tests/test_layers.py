"""A package imports only from packages above it in the table of docs/architecture.md."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tremula"
TABLE_ROW = re.compile(r"^\| `tremula\.(\w+)` \|")
# `import tremula` re-exports every layer, so only those who use it as a user would may import it.
MAY_IMPORT_FACADE = {"bench", "commands"}


def layers_from_table() -> list[str]:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return [match[1] for match in map(TABLE_ROW.match, text.splitlines()) if match]


def imported_modules(path: Path, source: str) -> list[tuple[int, str]]:
    """(line, dotted name) of everything a file imports, relative names resolved."""
    package = ("tremula", *path.relative_to(SOURCE).parent.parts)
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            # `from tremula import poplar` imports a package, not a name of the facade.
            if module == "tremula":
                found += [(node.lineno, f"tremula.{alias.name}") for alias in node.names]
            else:
                found.append((node.lineno, module))
    return found


def violations(path: Path, source: str, layers: list[str]) -> list[str]:
    where = path.relative_to(SOURCE)
    if len(where.parts) == 1:
        return []  # the facade may import anything, lazily
    own = where.parts[0]
    if own not in layers:
        return [f"{where}: package `tremula.{own}` is not in the table"]
    allowed = set(layers[: layers.index(own) + 1])
    broken = []
    for line, name in imported_modules(path, source):
        first, _, rest = name.partition(".")
        layer = rest.split(".")[0]
        if first != "tremula" or layer in allowed:
            continue
        if layer in layers:
            broken.append(f"{where}:{line}: `{own}` imports `{layer}`, which stands below it")
        elif own not in MAY_IMPORT_FACADE:
            broken.append(f"{where}:{line}: `{own}` imports `{name}`: name the defining package")
    return broken


def test_the_table_lists_every_package():
    """The table of the architecture page names exactly the packages that exist."""
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert set(layers_from_table()) == packages


def test_imports_follow_the_table():
    """No file under src/tremula imports from a package below its own."""
    layers = layers_from_table()
    broken = []
    for path in sorted(SOURCE.rglob("*.py")):
        broken += violations(path, path.read_text(encoding="utf-8"), layers)
    assert not broken, "\n".join(broken)


def test_an_upward_import_is_caught():
    """The check sees plain, relative, nested and facade imports of a lower layer."""
    path = SOURCE / "base" / "errors.py"
    for source in (
        "import tremula.poplar",
        "from tremula.poplar.graph import Graph",
        "from tremula import poplar",
        "def late():\n    from ..runtime import engine",
        "from tremula import Graph",
        "import tremula",
    ):
        assert len(violations(path, source, layers_from_table())) == 1, source
    assert not violations(path, "from .source import Source\nimport numpy", layers_from_table())
