"""Prints how the source reads: python tools/house.py [FIGURE]

Without an argument, one line per figure; with the beginning of a figure's name, the places that
make it up. Everything is counted from files and their syntax trees, nothing is imported or run.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from house_imports import (
    ROOT,
    Module,
    circles,
    modules,
    share_with_single_importer,
    single_importer,
    tree_of,
)

SHORT_FILE, LONG_FILE = 60, 600
LEAST_STATEMENT_NODES = 28  # of a syntax tree: about two lines
# Element types as the libraries spell them, and options that every table of PopART's has.
ELEMENT_TYPES = set("bool float16 float32 float64 bfloat16 int8 int16 int32 int64".split())
ELEMENT_TYPES |= {"uint8", "uint16", "uint32", "uint64"}
OPTIONS = set(
    "enableOutlining enableStochasticRounding constantWeights enableFloatingPointChecks "
    "enableGradientAccumulation delayVarUpdates enablePrefetchDatastreams groupHostSync "
    "explicitRecomputation outlineThreshold virtualGraphMode rearrangeAnchorsOnHost".split()
)
# Words of the house idiom (CONTRIBUTING.md, "How we write"): those that have no good use, which
# tests/test_style.py rejects, within identifiers, too; those that mostly read better otherwise;
# names of variables.
REJECTED = re.compile(
    r"(?<![a-z])(nought|anew|so many|shared out|nobody|somebody|are such|mend|mends|mended|"
    r"in no time|whence|thrice|in vain|hitherto|henceforth|whilst|amongst|aught|naught|begets|"
    r"astray|stands behind|loads slowly|only those who use it|brings Numba|unluckiest)(?![a-z])|"
    r'"""The same\b',
    re.IGNORECASE,
)
AVOIDED = re.compile(r"\b(of its own|of their own|once more)\b", re.IGNORECASE)
BANNED_NAMES = set("found given held kept asked".split())
BANNED_NAME = re.compile(rf"\b(?:{'|'.join(sorted(BANNED_NAMES))})\b")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COUNTED = (
    *FUNCTIONS, ast.ClassDef, ast.Call, ast.Name, ast.Attribute, ast.Assign, ast.AnnAssign,
    ast.Import, ast.ImportFrom,
)  # fmt: skip
# Public in spite of their underscore: named tuples', the schema of a PyTorch operator, and the
# placeholders of popops' expressions.
PUBLIC_UNDERSCORE = {"_replace", "_asdict", "_fields", "_make", "_schema", "_1", "_2", "_3"}


@cache
def nodes(name: str) -> dict[type[ast.AST], list[ast.AST]]:
    """The nodes of a module's tree that figures look at, by their kind."""
    result: dict[type[ast.AST], list[ast.AST]] = {kind: [] for kind in COUNTED}
    for node in ast.walk(modules()[name].tree):
        if type(node) in result:
            result[type(node)].append(node)
    return result


def every(*kinds: type[ast.AST]) -> Iterator[tuple[Module, ast.AST]]:
    for name, module in modules().items():
        for kind in kinds:
            for node in nodes(name)[kind]:
                yield module, node


def at(module: Module, node: ast.AST, text: str = "") -> str:
    return f"{module.where}:{getattr(node, 'lineno', 1)} {text}".rstrip()


# -- ideas that should be in one place -------------------------------------------------------------


def run_loops() -> list[str]:
    """Calls of `….session.run(…)` in front ends: each is a way to call a compiled step.

    A `session` that a file opens with `popxl.Session` is used as a script uses it.
    """
    return [
        at(module, node)
        for module, node in every(ast.Call)
        if module.is_frontend
        and ast.unparse(node.func).endswith("session.run")
        and "popxl.Session" not in {ast.unparse(call.func) for call in nodes(module.name)[ast.Call]}
    ]


def report_writers() -> list[str]:
    """Calls of `forecast(…)` in front ends: each is a way to a compiled step's report."""
    return [
        at(module, node)
        for module, node in every(ast.Call)
        if module.is_frontend and ast.unparse(node.func).split(".")[-1] == "forecast"
    ]


def _spelled(node: ast.AST) -> set[str]:
    """Names and strings in an expression."""
    result = set()
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            result.update(child.value.split())
        elif isinstance(child, ast.Name):
            result.add(child.id)
        elif isinstance(child, ast.Attribute):
            result.add(child.attr)
        elif isinstance(child, ast.keyword) and child.arg:
            result.add(child.arg)
    return result


def _is_public_row(statement: ast.Assign | ast.AnnAssign) -> bool:
    """Whether a name of a public API is bound to the row of that name: `int8 = row("int8")`."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    value = statement.value
    if not (isinstance(value, ast.Call) and isinstance(target, ast.Name) and len(value.args) == 1):
        return False
    argument = value.args[0]
    return isinstance(argument, ast.Constant) and argument.value == target.id


def _tables(vocabulary: set[str], at_least: int) -> list[str]:
    """Modules of front ends whose tables name at least that many words of a vocabulary."""
    result = []
    for module in modules().values():
        if not module.is_frontend:
            continue
        spelled = set()
        for statement in module.tree.body:
            is_value = isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value
            if is_value and not _is_public_row(statement):
                spelled |= {word.lower() for word in _spelled(statement.value)}
            if isinstance(statement, ast.ClassDef):  # the fields of a class are a table, too
                fields = (part for part in statement.body if isinstance(part, ast.AnnAssign))
                spelled |= {ast.unparse(part.target).lower() for part in fields}
        if len(spelled & {word.lower() for word in vocabulary}) >= at_least:
            result.append(module.where)
    return result


def option_tables() -> list[str]:
    """Modules of front ends whose tables name at least four of twelve well-known options."""
    return _tables(OPTIONS, 4)


def element_type_tables() -> list[str]:
    """Modules of front ends whose tables name at least six element types."""
    return _tables(ELEMENT_TYPES, 6)


def replica_group_classes() -> list[str]:
    """Classes that compute which replicas belong together.

    They have a stride and a size that is a group's, or are named a grouping of replicas. One that
    leaves all arithmetic to another, as the re-created libraries' names for `ReplicaGroup` do, has
    neither `//` nor `%` in it and is not counted.
    """
    result = []
    for module, node in every(ast.ClassDef):
        fields = {
            statement.target.id
            for statement in node.body
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
        }
        sizes = fields & {"size", "group_size", "replica_group_size", "replicaGroupSize"}
        named = re.fullmatch(
            r"Grouping|GroupValues|ReplicaGroup(ing)?|CommGroup|ReplicaMesh", node.name
        )
        named = named and "replica" in ast.unparse(node)
        is_group = named or (sizes and "stride" in fields)
        if is_group and any(isinstance(n, ast.FloorDiv | ast.Mod) for n in ast.walk(node)):
            result.append(at(module, node, node.name))
    return result


def repeated_functions() -> list[str]:
    """Functions of the same statements, whatever their names, parameters and variables are called.

    Very short ones do not count: two properties that return `len(self)` are no idea in two places.
    """
    places = defaultdict(list)
    for module, node in every(*FUNCTIONS):
        body = node.body[ast.get_docstring(node, clean=False) is not None :]
        local: dict[str, str] = {}
        for part in ast.walk(node.args):
            if isinstance(part, ast.arg):
                local.setdefault(part.arg, f"a{len(local)}")
        statements = tuple(_statement(part, local) for part in body)
        if sum(1 for part in body for _ in ast.walk(part)) >= LEAST_STATEMENT_NODES:
            places[statements].append(at(module, node, node.name))
    return [" = ".join(each) for each in places.values() if len(each) > 1]


def _statement(node: object, local: dict[str, str]) -> object:
    """A syntax tree as nested tuples; variables that are assigned are numbered as they come."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            local.setdefault(node.id, f"a{len(local)}")
        return local.get(node.id, node.id)
    if isinstance(node, ast.AST):
        return type(node).__name__, *(_statement(v, local) for _, v in ast.iter_fields(node))
    if isinstance(node, list):
        return tuple(_statement(part, local) for part in node)
    return repr(node)


def repeated_constants() -> list[str]:
    """Constants of modules with one name and one value in two or more files.

    Type variables and marks of what is missing (`object()`) belong to their file.
    """
    places = defaultdict(list)
    for module in modules().values():
        for statement in module.tree.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id.strip("_")
                if name.isupper() and not isinstance(statement.value, ast.Call):
                    places[name, ast.unparse(statement.value)].append(module.where)
    return [
        f"{name} ×{len(files)}: {' '.join(files)}"
        for (name, _), files in sorted(places.items())
        if len(files) > 1
    ]


# -- size ------------------------------------------------------------------------------------------


def lines_that_ship() -> int:
    return sum(module.n_lines for module in modules().values())


def long_files() -> list[str]:
    return [
        f"{module.where} {module.n_lines}"
        for module in modules().values()
        if module.n_lines > LONG_FILE
    ]


def _is_public_name(module: Module) -> bool:
    """A package's door, a top-level name of a re-created API, or only re-exports."""
    if module.path.name in {"__init__.py", "__main__.py"}:
        return True
    if not module.name.startswith("tremula.") or module.name.count(".") == 1:
        return True
    return ".applications." in module.name  # found by their names


def short_files() -> list[str]:
    """Files under 60 lines that are neither a package's door nor a public name."""
    return [
        f"{module.where} {module.n_lines}"
        for module in modules().values()
        if module.n_lines < SHORT_FILE and not _is_public_name(module)
    ]


@cache
def function_lengths() -> list[tuple[int, str]]:
    return sorted(
        (node.end_lineno - node.lineno + 1, at(module, node, node.name))
        for module, node in every(*FUNCTIONS)
    )


def function_quantiles() -> str:
    lengths = [n for n, _ in function_lengths()]
    points = [lengths[min(int(q * len(lengths)), len(lengths) - 1)] for q in (0.5, 0.9, 0.99)]
    return " / ".join(map(str, [*points, lengths[-1]]))


# -- names and types -------------------------------------------------------------------------------


def repeated_class_names() -> list[str]:
    """Class names that are defined in two or more files."""
    files = defaultdict(set)
    for module, node in every(ast.ClassDef):
        files[node.name].add(module.where)
    return [
        f"{name} ×{len(files[name])}: {' '.join(sorted(files[name]))}"
        for name in sorted(files, key=lambda name: (-len(files[name]), name))
        if len(files[name]) > 1
    ]


def uses_of_any() -> Counter[str]:
    """How often each file names `Any` beyond importing it."""
    counts: Counter[str] = Counter()
    for module, node in every(ast.Name):
        if node.id == "Any":
            counts[module.where] += 1
    return counts


def private_reads() -> list[str]:
    """Reads of `x._name` where x is neither self, cls, super() nor an imported module.

    A name that the same file defines does not count: there both sides are one idea.
    """
    result = []
    for name, module in modules().items():
        defined, libraries = _private_names_of(name)
        defined |= PUBLIC_UNDERSCORE
        for node in nodes(name)[ast.Attribute]:
            attribute = node.attr
            if not attribute.startswith("_") or attribute.endswith("__") or attribute in defined:
                continue
            if not isinstance(node.ctx, ast.Load):
                continue
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}:
                continue
            if isinstance(root, ast.Name) and root.id in libraries:
                continue
            if isinstance(root, ast.Call) and getattr(root.func, "id", "") == "super":
                continue
            result.append(at(module, node, ast.unparse(node)))
    return result


def _private_names_of(name: str) -> tuple[set[str], set[str]]:
    """Private names that a file defines, and the modules it imports from other projects."""
    of = nodes(name)
    defined = {node.name for kind in (*FUNCTIONS, ast.ClassDef) for node in of[kind]}
    defined |= {node.attr for node in of[ast.Attribute] if isinstance(node.ctx, ast.Store)}
    targets = [node.target for node in of[ast.AnnAssign]]
    targets += [target for node in of[ast.Assign] for target in node.targets]
    defined |= {target.id for target in targets if isinstance(target, ast.Name)}
    imports = of[ast.Import]
    imports += [n for n in of[ast.ImportFrom] if (n.module or "tremula").split(".")[0] != "tremula"]
    aliases = [alias for node in imports for alias in node.names]
    libraries = {"aten"} | {(alias.asname or alias.name).split(".")[0] for alias in aliases}
    return defined, libraries


def banned_words() -> list[str]:
    """Words of the house idiom in all texts, and such names of variables in what people read."""
    return [*matches(REJECTED), *matches(AVOIDED), *banned_names()]


def banned_names() -> list[str]:
    """Variables of modules and functions in src, examples, benchmarks and tools."""
    return [
        place
        for folder in ("src", "examples", "benchmarks", "tools")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if BANNED_NAME.search(path.read_text(encoding="utf-8"))  # few: only these are walked
        for place in _banned_names_in(path)
    ]


def _banned_names_in(path: Path) -> Iterator[str]:
    nodes_in_file = list(ast.walk(tree_of(path)))
    fields = {
        id(part.target)
        for node in nodes_in_file
        if isinstance(node, ast.ClassDef) and _is_vertex(node)
        for part in node.body
        if isinstance(part, ast.AnnAssign)
    }
    for node in nodes_in_file:
        is_stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        if is_stored and node.id in BANNED_NAMES and id(node) not in fields:
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.id}"


def _is_vertex(node: ast.ClassDef) -> bool:
    """Whether a class is a codelet: the names of its fields are part of compiled programs."""
    return any(ast.unparse(base).endswith("Vertex") for base in node.bases)


@cache
def matches(pattern: re.Pattern[str]) -> list[str]:
    """File, line and text of what matches in whatever people read (`_paths_of_texts`)."""
    result = []
    for path, text in _texts():
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            result.append(f"{path.relative_to(ROOT)}:{line} {match[0]}")
    return result


@cache
def _texts() -> list[tuple[Path, str]]:
    return [(path, path.read_text(encoding="utf-8")) for path in _paths_of_texts()]


def _paths_of_texts() -> Iterator[Path]:
    for folder, suffixes in (
        ("src", {".py", ".js", ".html"}),
        ("tests", {".py", ".js", ".mjs"}),
        ("docs", {".md"}),
        ("examples", {".py", ".md"}),
        ("benchmarks", {".py"}),
        ("tools", {".py", ".sh"}),  # but this file, which lists them
        ("changes", {".md"}),
    ):
        for path in sorted((ROOT / folder).rglob("*")):
            is_list = path == Path(__file__).resolve()
            if path.suffix in suffixes and not is_list and "node_modules" not in path.parts:
                yield path


# -- the table -------------------------------------------------------------------------------------


def _any_per_thousand() -> str:
    return f"{1000 * sum(uses_of_any().values()) / lines_that_ship():.1f}"


def _private_summary() -> str:
    places = private_reads()
    return f"{len(places)} in {len({place.split(':')[0] for place in places})} files"


def _counts(places: Callable[[], list[str]]) -> Callable[[], str]:
    return lambda: str(len(places()))


def _largest_folders() -> list[str]:
    counts = Counter(str(module.path.parent.relative_to(ROOT)) for module in modules().values())
    return [f"{folder} {n}" for folder, n in counts.most_common(10)]


FIGURES: dict[str, tuple[Callable[[], str], Callable[[], list[str]], str]] = {
    # figure: (its value, the places it counts, what it moves towards)
    "run loops": (_counts(run_loops), run_loops, "1"),
    "report writers": (_counts(report_writers), report_writers, "1"),
    "option tables": (_counts(option_tables), option_tables, "1"),
    "element-type tables": (_counts(element_type_tables), element_type_tables, "1"),
    "replica-group classes": (_counts(replica_group_classes), replica_group_classes, "1"),
    "functions written twice": (_counts(repeated_functions), repeated_functions, "0"),
    "constants written twice": (_counts(repeated_constants), repeated_constants, "fewer"),
    "lines of src that ship": (lambda: f"{lines_that_ship():,}", _largest_folders, "165,000"),
    "class names in two or more files": (_counts(repeated_class_names), repeated_class_names, "40"),
    "Any per 1,000 lines": (
        _any_per_thousand,
        lambda: [f"{where} {n}" for where, n in uses_of_any().most_common(40)],
        "5",
    ),
    "private attributes of other objects": (_private_summary, private_reads, "60"),
    "modules with a single importer": (share_with_single_importer, single_importer, "fewer"),
    "files under 60 lines": (_counts(short_files), short_files, "fewer"),
    "files over 600 lines": (_counts(long_files), long_files, "0"),
    "circles of imports, typing included": (_counts(circles), circles, "0"),
    "functions p50 / p90 / p99 / max": (
        function_quantiles,
        lambda: [f"{where} {n}" for n, where in reversed(function_lengths()[-40:])],
        "",
    ),
    "banned words": (_counts(banned_words), banned_words, "0"),
}


def main(arguments: list[str]) -> int:
    if not arguments:
        for name, (value, _, goal) in FIGURES.items():
            print(f"{name:38} {value():>22}   {'→ ' + goal if goal else ''}".rstrip())
        return 0
    start = " ".join(arguments).lower()
    chosen = [name for name in FIGURES if name.lower().startswith(start)]
    if not chosen:
        print(f"no figure begins with '{start}'; there are: {', '.join(FIGURES)}", file=sys.stderr)
        return 2
    for name in chosen:
        value, places, _ = FIGURES[name]
        print(f"{name}: {value()}", *places(), sep="\n  ")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
