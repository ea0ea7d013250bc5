"""The page docs/errors.md, made from the error classes."""

from tremula.base import errors

_HEAD = """# Errors

Every error Tremula raises on purpose is a `tremula.errors.PoplarError`. Its text says what failed,
in your names, with expected and got; then the line of your program; then what to try.

```python
import tremula as tr

graph = tr.Graph(tr.IPUModel("bow").create_device())
x = graph.add_variable(tr.FLOAT, [10], "x")
try:
    x.slice(5, 20)
except tr.errors.PoplarError as error:
    print(error)
```

```text
slice [5, 20) of dimension 0 is out of range for a tensor of shape [10].
  at errors.py:12
  try: use 0 <= begin <= end <= 10
```

| error | Poplar's name | when |
|---|---|---|
"""


def error_classes() -> list[type[errors.PoplarError]]:
    """All public errors, in the order they are written."""
    result = [c for c in vars(errors).values() if isinstance(c, type)]
    return [c for c in result if issubclass(c, errors.PoplarError)]


def errors_markdown() -> str:
    rows = []
    for cls in error_classes():
        depth = len(cls.__mro__) - len(errors.PoplarError.__mro__)
        when = (cls.__doc__ or "").strip().splitlines()[0]
        indent = "· " * max(0, depth - 1)
        theirs = errors.poplar_name(cls)
        known = f"`{theirs}`" if theirs else "ours alone"
        rows.append(f"| {indent}`{cls.__name__}` | {known} | {when} |")
    return _HEAD + "\n".join(rows) + "\n"
