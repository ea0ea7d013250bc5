"""`tensorflow` and its parts as modules, generated from the table when a script imports them."""

import dis
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any, NoReturn

from keras.src.utils import module_utils

from tremula.base.errors import suggest
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.tensorflow.table import ALIASES, MODULES, PREFIXES, REJECTED

ROOT = "tensorflow"
_MISSING = object()
_SPECIAL = ("__version__", "__internal__")
PAGE = "docs/keras-porting.md"
_OWN = "tremula.frontends.keras"
_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


class TensorFlowModule(ModuleType):
    """A module of TensorFlow's name; what it does not have is an error that says so in one line."""

    def __getattr__(self, name: str) -> Any:  # called for names that were not used yet
        if name == "__all__":  # for `import *`
            return [n for n in own_names(self.__name__) if not n.startswith("_")]
        if name.startswith("__") and name not in _SPECIAL:
            raise AttributeError(name)
        value = _looked_up(self.__name__, name)
        if value is _MISSING:
            _raise_missing(self.__name__, name)
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted({*names_of(self.__name__), *vars(self)})


def _looked_up(module: str, name: str) -> Any:
    """The value of a name by the rows of its module; `_MISSING` if none has it."""
    for source, names in _rows(module):
        if name in names:
            return getattr(importlib.import_module(source), names[name])
    if is_module(f"{module}.{name}"):
        return module_of(f"{module}.{name}")
    for source, names in _rows(module):
        if "*" in names and not name.startswith("_"):
            loaded = importlib.import_module(source)
            if name in _public(loaded):
                return getattr(loaded, name)
    return _MISSING


@cache
def _rows(module: str) -> list[tuple[str, dict[str, str]]]:
    """Sources of a module and the names that they have here and there."""
    result = []
    for row in MODULES.get(module, ()):
        source, _, words = row.partition(": ")
        pairs = [word.partition("=") for word in words.split()]
        source = f"{_OWN}{source}" if source.startswith(".") else source
        result.append((source, {own: other or own for own, _, other in pairs}))
    return result


def names_of(module: str) -> list[str]:
    """The public names of a module, its parts included."""
    return sorted({*_parts(ALIASES.get(module, module)), *own_names(module)})


def own_names(module: str) -> list[str]:
    """The names that the rows of a module give it."""
    result: set[str] = set()
    for source, names in _rows(ALIASES.get(module, module)):
        result.update(name for name in names if name != "*")
        if "*" in names:
            result.update(_public(importlib.import_module(source)))
    return sorted(result)


def _public(module: ModuleType) -> set[str]:
    """The names of a module that `*` stands for; of our own modules not what they import."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return set(listed)
    names = {name for name in vars(module) if not name.startswith("_")}
    if not module.__name__.startswith("tremula"):
        return names
    values = {name: vars(module)[name] for name in names}
    return {name for name, value in values.items() if not isinstance(value, ModuleType)}


def _parts(module: str) -> Iterator[str]:
    prefix = f"{module}."
    for path in (*MODULES, *ALIASES):
        if path.startswith(prefix):
            yield path.removeprefix(prefix).partition(".")[0]


def is_module(path: str) -> bool:
    """Whether there is a module of this name."""
    return path in MODULES or _alias_of(path) is not None


def _alias_of(path: str) -> str | None:
    """The first name of a module under its second; None if it has none."""
    if path in ALIASES:
        return ALIASES[path]
    for prefix, other in PREFIXES.items():
        moved = other + path.removeprefix(prefix)
        if path.startswith(prefix) and path not in MODULES and moved in MODULES:
            return moved
    return None


@cache
def module_of(path: str) -> ModuleType:
    """The module of a name; the same one for aliases. All names of a rejected one are errors."""
    other = _alias_of(path)
    return TensorFlowModule(path) if other is None else module_of(other)


def _reason(path: str) -> str | None:
    """Why a name, or a module around it, is not there."""
    while path:
        if path in REJECTED:
            return REJECTED[path]
        if MODULES.get(path):
            return None
        path = path.rpartition(".")[0]
    return None


def missing_text(module: str, name: str) -> str:
    """One line that names what is missing, and the page."""
    path = f"{module}.{name}"
    reason = _reason(path)
    if reason is not None:
        return f"{path} {reason} ({PAGE})."
    hint = suggest(name, names_of(module))
    return f"{module} has no {name!r}: Tremula has a part of TensorFlow's names ({PAGE}); {hint}"


def _raise_missing(module: str, name: str) -> NoReturn:
    text = missing_text(module, name)
    error = keras_error(text)
    caller = sys._getframe(2)
    if caller.f_code.co_code[caller.f_lasti] == _IMPORT_FROM:
        # Python replaces the text of an AttributeError here.
        raise ImportError(str(error), name=f"{module}.{name}")
    raise AttributeError(*error.args, name=name)


# -- importing -------------------------------------------------------------------------------------


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `tensorflow` and its parts in the table."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != ROOT and not fullname.startswith(f"{ROOT}."):
            return None
        if fullname != ROOT and not isinstance(sys.modules.get(ROOT), TensorFlowModule):
            return None
        is_rejected = fullname in REJECTED and _split(fullname)[1].islower()
        if not is_module(fullname) and not is_rejected:
            raise ModuleNotFoundError(missing_text(*_split(fullname)), name=fullname)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return module_of(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: names are looked up when they are used."""


def part_of(module: str, name: str) -> Any:
    """A name of a module that is not in the module that it stands for."""
    if not name.startswith("_"):
        for source, names in _rows(module):
            if name in names:
                return getattr(importlib.import_module(source), names[name])
        if is_module(f"{module}.{name}"):
            return module_of(f"{module}.{name}")
        raise AttributeError(missing_text(module, name), name=name)
    raise AttributeError(name)


def _split(path: str) -> tuple[str, str]:
    module, _, name = path.rpartition(".")
    return module, name


def as_tensorflow(synthetic_samples: int | None = None) -> ModuleType:
    """Let scripts import `tensorflow`, `tensorflow.keras` and `tensorflow.python.ipu` from here.

    With `synthetic_samples`, data sets of Keras have that many generated samples.
    """
    install(synthetic_samples)
    return importlib.import_module(ROOT)


def install(synthetic_samples: int | None = None) -> None:
    """Prepare this process for `import tensorflow`."""
    from tremula.frontends.keras.tensorflow import datasets, keras2

    loaded = sys.modules.get(ROOT)
    if loaded is not None and not isinstance(loaded, TensorFlowModule):
        raise keras_error(
            "TensorFlow itself is loaded, and its names are taken.",
            hint="call tremula.keras.as_tensorflow() before anything imports tensorflow",
        )
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
    _refresh_keras()
    keras2.install()
    if synthetic_samples is not None:
        datasets.synthesize(synthetic_samples)


def forget_tensorflow() -> None:
    """Take the names away again, as tests do: modules that have them keep them."""
    from tremula.frontends.keras.tensorflow import datasets, keras2, randoms

    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]
    for path, module in list(sys.modules.items()):
        if isinstance(module, TensorFlowModule):
            del sys.modules[path]
    datasets.synthesize(None)
    keras2.uninstall()
    randoms.forget_seed()
    _refresh_keras()


def _refresh_keras() -> None:
    """Let Keras look for TensorFlow again: it remembers whether there was one."""
    for lazy in (module_utils.tensorflow, module_utils.gfile):
        lazy._available = lazy.module = None


def names_markdown() -> str:
    """The page of all modules and names, for docs/tensorflow-names.md."""
    lines = [
        "# TensorFlow's names",
        "",
        "Every module and name of TensorFlow that scripts can import from Tremula, made from",
        "`frontends/keras/tensorflow/table.py`. [keras-porting.md](keras-porting.md) says how to",
        "use them. *All of* means every public name of another module.",
        "",
        "| module | names |",
        "|---|---|",
    ]
    for path in MODULES:
        if "__" in path:
            continue
        words = [name for _, names in _rows(path) for name in names if name != "*"]
        cells = [f"`{name}`" for name in sorted(set(words)) if not name.startswith("_")]
        whole = [source for source, names in _rows(path) if "*" in names]
        cells += [f"all of `{source.removeprefix('keras._tf_keras.')}`" for source in whole]
        if cells:
            lines.append(f"| `{path}` | {', '.join(cells)} |")
    lines += ["", "Other names of modules:", ""]
    lines += [f"* `{own}`: `{other}`" for own, other in ALIASES.items()]
    lines += [f"* `{own}…`: `{other}…`" for own, other in PREFIXES.items()]
    lines += ["", "Known, and not there:", ""]
    lines += [f"* `{path}` {reason}" for path, reason in REJECTED.items()]
    return "\n".join([*lines, ""])
