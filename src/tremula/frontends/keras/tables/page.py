"""The page of Keras's layers: which run, where, and why others do not; made from the table."""

from tremula.frontends.keras.tables.layer_table import LayerCase, layer_cases, names_of_keras

_HEAD = """# Layers of Keras

Every class of `keras.layers`, on this computer (three steps of `fit`, and `predict`, equal to eager
Keras) and on tiles (the same, vertex by vertex). Shapes are static. [keras.md](keras.md) says how a
model is run.

This page is made by `make docs`; `make test-wide` tries every row.

| layer | this computer | tiles |
|---|---|---|
"""


def layers_markdown() -> str:
    """The table by family, as Markdown."""
    cases = layer_cases()
    rows, family = [], ""
    for case in sorted(cases.values(), key=lambda case: (case.family, case.name)):
        if case.family != family:
            family = case.family
            rows.append(f"| **{family}** | | |")
        rows.append(f"| {_names(case)} | {_verdict(case.host)} | {_verdict(case.tiles)} |")
    n_host, n_tiles = (sum(not reason for reason in column) for column in _columns(cases))
    tail = f"\n\n{len(cases)} layers: {n_host} run on this computer, {n_tiles} on tiles.\n"
    return _HEAD + "\n".join(rows) + tail


def _columns(cases: dict[str, LayerCase]) -> tuple[list[str], list[str]]:
    return [case.host for case in cases.values()], [case.tiles for case in cases.values()]


def _names(case: LayerCase) -> str:
    others = [n for n, row in names_of_keras().items() if row == case.name and n != case.name]
    return ", ".join(f"`{name}`" for name in [case.name, *others])


def _verdict(reason: str) -> str:
    return reason or "yes"
