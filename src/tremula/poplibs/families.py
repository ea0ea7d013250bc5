"""Codelet families: a vertex class per type, made once, with its cycles and flops."""

import hashlib
import linecache
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

from tremula.codelets import InOut, Input, MultiVertex, Output, Vector, Vertex
from tremula.poplibs.registry import PoplibsError

Family = TypeVar("Family", bound=Callable[..., type])


def family(make: Family) -> Family:
    """A cached factory of Vertex classes; each class must have its own `cycles` and `flops`."""

    @cache
    @wraps(make)
    def made(*arguments: object) -> type:
        cls = make(*arguments)
        missing = [what for what in ("cycles", "flops") if what not in vars(cls)]
        if missing:
            raise PoplibsError(
                f"codelet {cls.__name__} does not say its {' and '.join(missing)}.",
                hint="give it static methods cycles(v, chip) and flops(v, chip); "
                "flops = no_flops if it has none",
            )
        return cls

    made.has_cost = True  # type: ignore[attr-defined]
    return made  # type: ignore[return-value]


_NAMES = {
    "Vertex": Vertex, "MultiVertex": MultiVertex, "Vector": Vector,
    "Input": Input, "Output": Output, "InOut": InOut,
}  # fmt: skip


def class_from_text(text: str, class_name: str, names: dict[str, object]) -> type:
    """The Vertex class that generated source defines. Tracebacks show the source."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    filename = f"<codelet {class_name} {digest}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {**_NAMES, **names, "__name__": "tremula.poplibs.generated"}
    exec(compile(text, filename, "exec"), namespace)
    return namespace[class_name]
