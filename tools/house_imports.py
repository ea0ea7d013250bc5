"""What the modules of src import of each other, for tools/house.py; nothing is imported or run."""

import ast
import gc
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"


@dataclass
class Module:
    """What one file says of itself."""

    name: str
    path: Path
    n_lines: int
    tree: ast.Module
    imports: set[str] = field(default_factory=set)  # at run time, inside functions too
    typing_imports: set[str] = field(default_factory=set)

    @property
    def where(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def is_frontend(self) -> bool:
        return self.name.startswith("tremula.frontends.")


def dotted_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file, which stays until the end."""
    gc.disable()  # looking for garbage in what stays takes twice as long
    try:
        return ast.parse(path.read_bytes())
    finally:
        gc.freeze()
        gc.enable()


@cache
def modules() -> dict[str, Module]:
    """Every module of src by its dotted name, with what it imports of the others."""
    result = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = dotted_name(path)
        n_lines = path.read_bytes().count(b"\n")
        result[name] = Module(name, path, n_lines, tree_of(path))
    for module in result.values():
        _collect_imports(module, module.tree, result, for_typing=False)
    return result


def _collect_imports(
    module: Module, node: ast.AST, known: dict[str, Module], *, for_typing: bool
) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue
        names = set(_imported(module, child, known))
        (module.typing_imports if for_typing else module.imports).update(names)
        is_typing = isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING"
        _collect_imports(module, child, known, for_typing=for_typing or is_typing)


def _imported(module: Module, node: ast.AST, known: dict[str, Module]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = module.name.split(".")
            is_package = module.path.name == "__init__.py"
            parts = parts[: len(parts) - node.level + is_package]
            base = ".".join([*parts, *([base] if base else [])])
        for alias in node.names:
            full = f"{base}.{alias.name}"
            if full in known:
                yield full
            elif base in known:
                yield base


def single_importer() -> list[str]:
    """Modules of tremula that exactly one other module imports, with that module."""
    importers = defaultdict(set)
    for module in modules().values():
        for other in module.imports | module.typing_imports:
            importers[other].add(module.name)
    return [
        f"{modules()[name].where} ← {next(iter(importers[name]))}"
        for name in sorted(importers)
        if len(importers[name]) == 1 and modules()[name].path.name != "__init__.py"
    ]


def share_with_single_importer() -> str:
    n_modules = sum(module.path.name != "__init__.py" for module in modules().values())
    n_single = len(single_importer())
    return f"{n_single} of {n_modules} ({100 * n_single / n_modules:.0f} %)"


def circles() -> list[str]:
    """Groups of modules that import each other, annotations included."""
    graph = {
        name: (module.imports | module.typing_imports) - {name}
        for name, module in modules().items()
        if module.path.parent != SOURCE / "tremula"
    }
    graph = {name: others & graph.keys() for name, others in graph.items()}
    return [" ↔ ".join(sorted(group)) for group in _components(graph) if len(group) > 1]


def _components(graph: dict[str, set[str]]) -> Iterator[list[str]]:
    """Strongly connected components (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(name: str) -> Iterator[list[str]]:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in graph[name]:
            if other not in order:
                yield from visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            yield group

    for name in graph:
        if name not in order:
            yield from visit(name)
