"""A Python file to fill in for custom operations written in C++ for PopART, from their sources.

    tremula codelets --template custom_ops/*.cpp > custom_ops.py

Sources name operators (`OperatorIdentifier{"custom.ops", "LeakyRelu", 1}`) and hold codelets. The
file registers each operator; what it computes is written by hand, with PyTorch or with a codelet.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_OPERATOR = re.compile(
    r"OperatorIdentifier\s*\w*\s*[={(\s]*"
    r"(?:\"(?P<domain>[^\"]+)\"|(?:\w+::)*Domain::(?P<constant>\w+))"
    r"\s*,\s*\"(?P<name>[^\"]+)\"\s*,\s*(?P<version>\d+)"
)
_CODELET = re.compile(
    r"(?P<template>template\s*<[^>]*>\s*)?class\s+(?:\[\[[^\]]*\]\]\s*)?(?P<name>\w+)\s*"
    r":\s*public\s+(?:poplar::)?(?:Multi|Supervisor)?Vertex\b"
)
_FIELD = re.compile(r"(?:poplar::)?(Input|Output|InOut)\s*<[^;]*>\s*(\w+(?:\s*,\s*\w+)*)\s*;")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DOMAINS = {"ai_graphcore": "ai.graphcore", "ai_onnx": "ai.onnx"}


@dataclass(frozen=True)
class OperatorName:
    """An operator as PopART and `poptorch.custom_op` name it."""

    name: str
    domain: str
    version: int


@dataclass(frozen=True)
class CodeletFields:
    """A codelet, its file and its fields."""

    name: str
    file: str
    is_template: bool
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def operators_in(texts: Iterable[str]) -> list[OperatorName]:
    """The operators that sources name, in order, each once."""
    result: dict[OperatorName, None] = {}
    for text in texts:
        for match in _OPERATOR.finditer(_COMMENT.sub("", text)):
            domain = match["domain"] or _DOMAINS.get(match["constant"], match["constant"])
            result[OperatorName(match["name"], domain, int(match["version"]))] = None
    return list(result)


def codelets_in(text: str, file: str) -> Iterator[CodeletFields]:
    """The codelets of a source."""
    plain = _COMMENT.sub("", text)
    matches = list(_CODELET.finditer(plain))
    ends = [match.start() for match in matches[1:]] + [len(plain)]
    for match, end in zip(matches, ends, strict=True):
        fields: dict[str, list[str]] = {"Input": [], "Output": [], "InOut": []}
        for kind, names in _FIELD.findall(plain[match.end() : end]):
            fields[kind] += re.split(r"\s*,\s*", names)
        yield CodeletFields(
            match["name"],
            file,
            match["template"] is not None,
            tuple(fields["Input"]),
            tuple(fields["Output"] + fields["InOut"]),
        )


def template_of(files: Sequence[str | Path]) -> str:
    """The Python file to fill in for these sources."""
    texts = {str(file): Path(file).read_text(errors="replace") for file in files}
    codelets = [codelet for file, text in texts.items() for codelet in codelets_in(text, file)]
    operators = operators_in(texts.values())
    names = {operator.name for operator in operators}
    parts = [_HEAD.format(files=", ".join(Path(file).name for file in texts), library="torch")]
    for operator in operators:
        if operator.name.endswith("Grad") and operator.name.removesuffix("Grad") in names:
            continue  # PopART's operator of a gradient: a function here
        parts.append(_of_operator(operator, has_gradient=f"{operator.name}Grad" in names))
    if codelets:
        parts.append(_CODELETS + "\n".join(map(_of_codelet, codelets)) + "\n")
    return "\n".join(parts)


_HEAD = '''"""Stands for the operations of {files}: fill in what each computes.

docs/custom_ops.md explains how.
"""

import {library}

import tremula as tr
'''

_OPERATION = '''
def {function}(inputs, attributes):
    """Results of {name}, with PyTorch, from a list of tensors and a dictionary."""
    raise NotImplementedError("{name}: compute it with PyTorch, or register a codelet")

{gradient}
tr.custom_operation("{name}", "{domain}", {version}, host={function}{argument})
'''

_GRADIENT = '''
def {function}_gradient(inputs, outputs, gradients, attributes):
    """Gradients of the inputs of {name}, from those of its outputs."""
    raise NotImplementedError("{name}: compute its gradient with PyTorch")

'''

_CODELETS = """
# The sources hold these codelets, which run unchanged: instead of custom_operation above,
# tr.codelet_operation(name, domain, version, ...) with
"""


def _of_operator(operator: OperatorName, *, has_gradient: bool) -> str:
    function = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", operator.name).lower()
    function = re.sub(r"\W", "_", function)
    gradient = _GRADIENT.format(function=function, name=operator.name) if has_gradient else ""
    argument = f", gradient={function}_gradient" if has_gradient else ""
    return _OPERATION.format(
        function=function,
        name=operator.name,
        domain=operator.domain,
        version=operator.version,
        gradient=gradient,
        argument=argument,
    )


def _of_codelet(codelet: CodeletFields) -> str:
    vertex = f"{codelet.name}<{{0}}>" if codelet.is_template else codelet.name
    outputs = dict.fromkeys(codelet.outputs, 0)
    return (
        f'#     codelets="{codelet.file}", vertex="{vertex}", '
        f"inputs={list(codelet.inputs)}, outputs={outputs}"
    )
