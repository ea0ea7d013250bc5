"""A program as a picture: a column for each graph, operations from top to bottom, and calls.

Operations are in rows by how far they are from the graph's inputs, edges lead from the operation
that makes a tensor to those that read it; an edge to something written is red, a call is dashed.
"""

from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from tremula.frontends.popxl.core.op import TRANSFERS

if TYPE_CHECKING:
    from tremula.frontends.popxl.core.graph import Graph
    from tremula.frontends.popxl.core.op import Op
    from tremula.frontends.popxl.core.tensor import Tensor

CHARACTER, ROW, COLUMN, BOX, MARGIN = 6.6, 46, 14, 24, 16
MAX_OPS = 400  # of one graph; the rest is a number
_STYLE = """
text { font: 11px sans-serif; fill: #222 } .title { font-weight: bold }
.graph { fill: #fafafa; stroke: #bbb } .op { fill: #dbe9f6; stroke: #6a8caf }
.input, .output { fill: #fff; stroke: #999 } .variable { fill: #fdebc8; stroke: #c79a3c }
.constant { fill: #eee; stroke: #aaa } .call { fill: #e3f0d9; stroke: #7aa35b }
.transfer { fill: #efe0f5; stroke: #9a6fb0 }
path { fill: none; stroke: #888 } .written { stroke: #c0392b } .calls { stroke: #7aa35b;
stroke-dasharray: 5 4 }
"""


@dataclass
class _Box:
    """A labelled rectangle; `x` and `y` are its middle."""

    label: str
    style: str
    row: int
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return max(40.0, len(self.label) * CHARACTER + 14)


@dataclass
class _Drawing:
    """A graph's boxes and edges, laid out."""

    graph: "Graph"
    boxes: list[_Box] = field(default_factory=list)
    edges: list[tuple[int, int, bool]] = field(default_factory=list)  # box to box, written
    calls: "list[tuple[int, Graph]]" = field(default_factory=list)  # box → graph
    width: float = 0.0
    height: float = 0.0


def svg_of(ir: Any) -> str:
    """All graphs of a program, the main one first, side by side."""
    drawings = [_drawn(graph) for graph in ir.graphs]
    x, parts, corners = float(MARGIN), [], {}
    for drawing in drawings:
        corners[drawing.graph] = x
        parts.append(_graph_text(drawing, x))
        x += drawing.width + 2 * MARGIN
    parts += [_call_text(d, corners[d.graph], corners) for d in drawings]
    height = max(d.height for d in drawings) + 3 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{x:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {x:.0f} {height:.0f}"><style>{_STYLE}</style>{"".join(parts)}</svg>'
    )


def _drawn(graph: "Graph") -> _Drawing:
    drawing = _Drawing(graph)
    maker: dict[Tensor, int] = {}  # the box that a tensor comes from

    def add(label: str, style: str, row: int) -> int:
        drawing.boxes.append(_Box(label, style, row))
        return len(drawing.boxes) - 1

    def source(t: "Tensor") -> int:
        if t not in maker:
            style = {"Variable": "variable", "Constant": "constant"}.get(type(t).__name__, "input")
            maker[t] = add(t.name, style, 0)
        return maker[t]

    for t in graph.inputs:
        source(t)
    for op in graph.ops[:MAX_OPS]:
        sources = [source(t) for t in op.inputs]
        row = 1 + max((drawing.boxes[i].row for i in sources), default=0)
        place = add(_label(op), _style(op), row)
        drawing.edges += [
            (i, place, op.writes(k) if op.kind != "If" else False) for k, i in enumerate(sources)
        ]
        drawing.calls += [(place, called) for called in op.graphs]
        maker.update(dict.fromkeys(op.outputs, place))
    last = 1 + max((box.row for box in drawing.boxes), default=0)
    for t in graph.outputs:
        place = add(t.name, "output", last)
        drawing.edges.append((source(t), place, False))
    if len(graph.ops) > MAX_OPS:
        add(f"… {len(graph.ops) - MAX_OPS} more", "op", last)
    _lay_out(drawing)
    return drawing


def _label(op: "Op") -> str:
    count = op.attributes.get("repeat_count")
    return op.kind if count is None else f"{op.kind} × {count}"


def _style(op: "Op") -> str:
    if op.graphs:
        return "call"
    return "transfer" if op.kind in TRANSFERS or op.row.is_collective else "op"


def _lay_out(drawing: _Drawing) -> None:
    """Rows from top to bottom, boxes of a row side by side in the middle."""
    rows: dict[int, list[_Box]] = {}
    for box in drawing.boxes:
        rows.setdefault(box.row, []).append(box)
    widths = {row: sum(b.width + COLUMN for b in boxes) for row, boxes in rows.items()}
    title = len(drawing.graph.id or "main") * CHARACTER * 1.2
    drawing.width = max([title, 80.0, *widths.values()]) + MARGIN
    for level, row in enumerate(sorted(rows)):
        x = (drawing.width - widths[row]) / 2
        for box in rows[row]:
            box.x, box.y = x + (box.width + COLUMN) / 2, 2.5 * MARGIN + level * ROW
            x += box.width + COLUMN
    drawing.height = 2.5 * MARGIN + len(rows) * ROW


def _graph_text(drawing: _Drawing, left: float) -> str:
    frame = f'width="{drawing.width:.1f}" height="{drawing.height:.1f}" rx="6"'
    parts = [
        f'<g transform="translate({left:.1f},{MARGIN})"><rect class="graph" {frame}/>',
        f'<text class="title" x="8" y="16">{escape(drawing.graph.id or "main")}</text>',
    ]
    for a, b, is_written in drawing.edges:
        start, end = drawing.boxes[a], drawing.boxes[b]
        y0, y1 = start.y + BOX / 2, end.y - BOX / 2
        middle = (y0 + y1) / 2
        style = ' class="written"' if is_written else ""
        parts.append(
            f'<path{style} d="M{start.x:.1f},{y0:.1f} C{start.x:.1f},{middle:.1f}'
            f' {end.x:.1f},{middle:.1f} {end.x:.1f},{y1:.1f}"/>'
        )
    parts += [_box_text(box) for box in drawing.boxes]
    return "".join([*parts, "</g>"])


def _box_text(box: _Box) -> str:
    return (
        f'<rect class="{box.style}" x="{box.x - box.width / 2:.1f}" y="{box.y - BOX / 2:.1f}"'
        f' width="{box.width:.1f}" height="{BOX}" rx="4"/>'
        f'<text x="{box.x:.1f}" y="{box.y + 4:.1f}" text-anchor="middle">'
        f"{escape(box.label)}</text>"
    )


def _call_text(drawing: _Drawing, left: float, corners: "dict[Graph, float]") -> str:
    parts = []
    for place, called in drawing.calls:
        box = drawing.boxes[place]
        x0, y0 = left + box.x + box.width / 2, box.y + MARGIN
        x1 = corners[called]
        parts.append(
            f'<path class="calls" d="M{x0:.1f},{y0:.1f} Q{(x0 + x1) / 2:.1f},{MARGIN / 2:.1f}'
            f' {x1:.1f},{MARGIN + 12:.1f}"/>'
        )
    return "".join(parts)
