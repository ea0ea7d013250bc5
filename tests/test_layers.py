"""Packages import only from those above them, rooms from those before: see docs/architecture.md."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

from tests.sources import ROOT, statements, tree_of

SOURCE = ROOT / "src" / "tremula"
BENCHMARKS = ROOT / "benchmarks"
TABLE_ROW = re.compile(r"^\| `tremula\.(\w+)` \|")
# `import tremula` re-exports every layer, so only layers that use it like a script import it.
MAY_IMPORT_FACADE = {"commands", "demo", "garden"}
MAX_FILES_IN_FOLDER = 22


def layers_from_table() -> list[str]:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return [match[1] for match in map(TABLE_ROW.match, text.splitlines()) if match]


def imported_modules(path: Path, tree: ast.Module) -> list[tuple[int, str]]:
    """(line, dotted name) of everything a file imports, relative names resolved."""
    package = ("tremula", *path.relative_to(SOURCE).parent.parts)
    result = []
    for node in statements(tree):
        if isinstance(node, ast.Import):
            result += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            # `from tremula import poplar` imports a package, not a name of the facade.
            if module == "tremula":
                result += [(node.lineno, f"tremula.{alias.name}") for alias in node.names]
            else:
                result.append((node.lineno, module))
    return result


def violations(path: Path, tree: ast.Module, layers: list[str]) -> list[str]:
    where = path.relative_to(SOURCE)
    if len(where.parts) == 1:
        return []  # the facade may import anything, lazily
    own = where.parts[0]
    if own not in layers:
        return [f"{where}: package `tremula.{own}` is not in the table"]
    allowed = set(layers[: layers.index(own) + 1])
    broken = []
    for line, name in imported_modules(path, tree):
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
        broken += violations(path, tree_of(path), layers)
    assert not broken, "\n".join(broken)


def test_the_package_does_not_import_tests_or_benchmarks():
    """Only the command `tremula bench` imports what is not installed with the package."""
    importers = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for _, name in imported_modules(path, tree_of(path))
        if name.split(".")[0] in {"benchmarks", "tests"}
    }
    assert importers <= {"commands/bench.py"}


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
        assert len(violations(path, ast.parse(source), layers_from_table())) == 1, source
    harmless = ast.parse("from .source import Source\nimport numpy")
    assert not violations(path, harmless, layers_from_table())


# -- rooms inside packages -------------------------------------------------------------------------

# Folders whose sub-folders are independent: no row lists them, and none imports another.
SIDE_BY_SIDE = ("tremula.garden.applications",)


def rooms_in_order() -> dict[str, list[str]]:
    """The sub-folders of each package, in the order of tests/rooms.toml."""
    table = tomllib.loads((ROOT / "tests" / "rooms.toml").read_text(encoding="utf-8"))
    return {package: rooms.split() for package, rooms in table.items()}


def module_files() -> dict[str, Path]:
    """Every module of the package and of the benchmarks by its dotted name."""
    result = {}
    for folder in (SOURCE, BENCHMARKS):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            result[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return result


def is_for_typing(node: ast.AST) -> bool:
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def imports_of(tree: ast.AST, modules: dict[str, Path], *, typing: bool) -> set[str]:
    """Modules of ours that a file imports, at its top or inside functions; or only for typing."""
    result = set()
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.expr):
            continue
        if is_for_typing(child):
            result |= imports_of(child, modules, typing=False) if typing else set()
            continue
        if isinstance(child, ast.ImportFrom) and child.module and not typing:
            names = [f"{child.module}.{alias.name}" for alias in child.names]
            result |= {n if n in modules else child.module for n in names}
        elif isinstance(child, ast.Import) and not typing:
            result |= {alias.name for alias in child.names}
        result |= imports_of(child, modules, typing=typing)
    return result & modules.keys()


@cache
def import_graph(*, typing: bool) -> dict[str, frozenset[str]]:
    modules = module_files()
    return {
        name: frozenset(imports_of(tree_of(path), modules, typing=typing))
        for name, path in modules.items()
    }


def circles(graph: dict[str, frozenset[str]]) -> list[list[str]]:
    """Groups of modules that reach each other (Tarjan's components of two or more)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    result = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in graph[name]:
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                result.append(sorted(group))

    for name in graph:
        if name not in order:
            visit(name)
    return result


def test_the_rooms_list_every_folder():
    """A package with two or more sub-folders lists all of them, and no others."""
    rooms, modules = rooms_in_order(), module_files()
    packages = {name for name, path in modules.items() if path.name == "__init__.py"}
    folders: dict[str, set[str]] = {}
    for name in packages - {"tremula", "benchmarks"}:
        parent, _, folder = name.rpartition(".")
        folders.setdefault(parent, set()).add(folder)
    for package in sorted(folders.keys() - {"tremula", *SIDE_BY_SIDE}):
        if len(folders[package]) > 1 or package in rooms:
            assert set(rooms.get(package, [])) == folders[package], package


def test_rooms_import_from_rooms_before_them():
    """Inside a package a folder imports only from folders listed before it, lazily or not."""
    graph, broken = import_graph(typing=False), []
    for package, order in rooms_in_order().items():
        position = {room: i for i, room in enumerate(order)}
        prefix = f"{package}."
        for name in graph:
            for other in graph[name]:
                if not (name.startswith(prefix) and other.startswith(prefix)):
                    continue
                own, used = (n[len(prefix) :].split(".")[0] for n in (name, other))
                if own not in position or used not in position:
                    continue
                if position[used] > position[own]:
                    broken.append(f"{name} imports {other}: `{used}` comes after `{own}`")
    assert not broken, "\n".join(sorted(broken))


def test_rooms_side_by_side_know_nothing_of_each_other():
    """No application imports another."""
    for package in SIDE_BY_SIDE:
        start = len(package) + 1
        assert package in import_graph(typing=False)
        for name, others in import_graph(typing=False).items():
            if name.startswith(f"{package}."):
                own = name[start:].split(".")[0]
                inside = {n[start:].split(".")[0] for n in others if n.startswith(f"{package}.")}
                assert inside <= {own}, name


def test_no_two_modules_import_each_other():
    """There is no circle of imports, those inside functions included."""
    assert not circles(import_graph(typing=False))


def test_no_two_modules_name_each_other_in_annotations():
    """There is no circle of imports either if those for type checkers are counted."""
    runtime, typing = import_graph(typing=False), import_graph(typing=True)
    assert not circles({name: runtime[name] | typing[name] for name in runtime})


def test_folders_are_small():
    """No folder holds more than about 20 files."""
    counts: dict[Path, int] = {}
    for path in SOURCE.rglob("*.py"):
        counts[path.parent] = counts.get(path.parent, 0) + 1
    assert not {str(p): n for p, n in counts.items() if n > MAX_FILES_IN_FOLDER}
