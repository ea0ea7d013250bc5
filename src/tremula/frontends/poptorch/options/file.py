"""Options from a file, from JSON and from the environment; none of them runs code."""

import ast
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tremula.base.errors import suggest
from tremula.base.storage import strict_json
from tremula.frontends.poptorch import enums
from tremula.frontends.poptorch.options import groups as sub_options
from tremula.frontends.poptorch.options import strategies
from tremula.frontends.poptorch.options.base import OptionsDict

# The names that a line may use besides options; all of them only hold values.
_POPTORCH_NAMES: dict[str, Any] = {
    **{name: getattr(enums, name) for name in enums.__all__},
    "Stage": strategies.Stage,
    "Phase": strategies.Phase,
    "PipelinedExecution": strategies.PipelinedExecution,
    "ShardedExecution": strategies.ShardedExecution,
    "SerialPhasedExecution": strategies.SerialPhasedExecution,
    "ParallelPhasedExecution": strategies.ParallelPhasedExecution,
    "TensorLocationSettings": sub_options.TensorLocationSettings,
}
_DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
_ENUM_TEXT = re.compile(r"(?:poptorch\.)?(\w+)\.(\w+)")


class ConfigFileError(Exception):
    """A line of an options file cannot be understood or is rejected by its option."""


def load_options_file(options: OptionsDict, path: str | os.PathLike[str]) -> None:
    """Apply the lines of a file, each one call of a setter; `#` starts a comment."""
    path = Path(path)
    for number, line in enumerate(_text_of(path).splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            _apply_line(options, f"options.{text}")
        except Exception as error:  # whatever a setter raises, name the line
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise ConfigFileError(
                f"{type(error).__name__} at line {number} of {path.name}: {reason}\n"
                f"> options.{text}"
            ) from error


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigFileError(f"{path} is not text, so it is not a file of options") from error


def _apply_line(options: OptionsDict, text: str) -> None:
    tree = ast.parse(text, mode="eval").body
    if not isinstance(tree, ast.Call):
        raise SyntaxError(  # noqa: TRY004 (the line is not a call)
            "a line must be one call of an option: name(value)"
        )
    _value_of(tree, {"options": options, "poptorch": _POPTORCH_NAMES, "torch": _DTYPES})


def _value_of(node: ast.expr, names: dict[str, Any]) -> Any:  # noqa: ANN401
    """The value of an expression made of literals, options, and names of PopTorch."""
    if isinstance(node, ast.Call):
        positional = [_value_of(arg, names) for arg in node.args]
        named = {word.arg: _value_of(word.value, names) for word in node.keywords if word.arg}
        return _value_of(node.func, names)(*positional, **named)
    if isinstance(node, ast.Attribute):
        return _member(_value_of(node.value, names), node.attr)
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise NameError(f"name {node.id!r} is not known here: {suggest(node.id, names)}")
        return names[node.id]
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        kind = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
        return kind(_value_of(item, names) for item in node.elts)
    if isinstance(node, ast.Dict) and None not in node.keys:
        keys = [_value_of(key, names) for key in node.keys if key is not None]
        values = [_value_of(value, names) for value in node.values]
        return dict(zip(keys, values, strict=True))
    try:
        return ast.literal_eval(node)
    except ValueError:
        what = f"only values and names of PopTorch can be used here, not {ast.unparse(node)}"
        raise SyntaxError(what) from None


def _member(owner: object, name: str) -> Any:  # noqa: ANN401
    if isinstance(owner, dict):  # the names of poptorch or torch that may be used
        if name not in owner:
            raise AttributeError(f"{name!r} cannot be used here: {suggest(name, owner)}")
        return owner[name]
    if name.startswith("_") and name != "_Popart":
        raise AttributeError(f"{name!r} is private")
    return getattr(owner, name)


def apply_json(options: OptionsDict, text: str) -> None:
    """Apply `{"accessor": value or [arguments]}`; an accessor may have dots."""
    parsed = strict_json.loads(text)
    if not isinstance(parsed, dict):
        raise TypeError(f"options must be a JSON object, got {text!r}")
    for accessor, value in parsed.items():
        arguments = value if isinstance(value, list) else [value]
        _setter(options, accessor)(*(_from_json(argument) for argument in arguments))


def _setter(options: OptionsDict, accessor: str) -> Callable:
    result: Any = options
    for name in accessor.split("."):
        owner, result = result, getattr(result, name, None)
        if result is None:
            known = [known for known in dir(type(owner)) if not known.startswith("__")]
            raise AttributeError(
                f"Invalid attribute {name!r} in option {accessor!r}: {suggest(name, known)}"
            )
    return result


def _from_json(value: object) -> Any:  # noqa: ANN401
    """A JSON value; "ConnectionType.Never" means the enumeration, "torch.half" the type."""
    match = _ENUM_TEXT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    if match[1] == "torch":
        return _DTYPES.get(match[2], value)
    kind = getattr(enums, match[1], None)
    return getattr(kind, match[2], value)


def apply_environment(options: Any) -> None:  # noqa: ANN401 (an Options, which imports this file)
    """Apply the cache folder and the default options that the environment names."""
    cache = os.environ.get("POPTORCH_CACHE_DIR")
    if cache:
        options.enableExecutableCaching(cache)
    defaults = os.environ.get("POPTORCH_DEFAULT_OPTIONS")
    if defaults:
        apply_json(options, defaults)
