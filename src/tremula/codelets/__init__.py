"""Codelets: what a vertex is, its fields, its native code and its cost."""

from collections.abc import Mapping

from tremula.base.errors import GraphObjectLoadError
from tremula.codelets.python_codelet import codelet_of, python_codelet_from_dict
from tremula.codelets.spec import Codelet
from tremula.codelets.vertex import (
    InOut,
    Input,
    MultiVertex,
    Output,
    SupervisorVertex,
    Vector,
    VectorList,
    Vertex,
)

__all__ = [
    "InOut",
    "Input",
    "MultiVertex",
    "Output",
    "SupervisorVertex",
    "Vector",
    "VectorList",
    "Vertex",
    "codelet_from_dict",
    "codelet_of",
]


def codelet_from_dict(stored: Mapping[str, object]) -> Codelet:
    """The codelet that `codelet.to_dict()` described, from a file that need not be trusted."""
    language = stored.get("language") if isinstance(stored, Mapping) else None
    if language == "python":
        return python_codelet_from_dict(stored)
    if language == "c++":
        # Not at the top: few programs have C++ codelets.
        from tremula.codelets.cpp.codelet import cpp_codelet_from_dict

        return cpp_codelet_from_dict(dict(stored))
    raise GraphObjectLoadError(
        f"a stored codelet is refused: unknown language {language!r}.",
        hint="the file is damaged or from a newer version: build the program again",
    )
