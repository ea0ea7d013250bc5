"""The graph of operations and the tensors between them: what the tile program reads and writes."""

import pytest

from tests.vision.page.checks import whole
from tremula.vision.pva.tile_program import accesses_of_step

pytestmark = pytest.mark.slow

# A random graph of 400 nodes: [overlaps, edges that lead the wrong way].
_LAYOUT = """(async () => {
  const { layered } = await import("/page/parts/layered.js");
  let seed = 7;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  const nodes = Array.from({ length: 400 }, (_, rank) => ({ width: 40 + random(200), rank }));
  const edges = Array.from({ length: 900 }, () => ({ from: random(400), to: random(400) }));
  const real = edges.filter(({ from, to }) => from !== to);
  const { places, paths } = layered(nodes, real, 40);
  let overlaps = 0, wrong = 0;
  for (let i = 0; i < 400; i++) for (let k = 0; k < i; k++) {
    const apart = (nodes[i].width + nodes[k].width) / 2;
    if (places[i].y === places[k].y && Math.abs(places[i].x - places[k].x) < apart) overlaps += 1;
  }
  real.forEach(({ from, to }, i) => {
    if (paths[i].isBack !== from > to || (from < to && places[from].y >= places[to].y)) wrong += 1;
  });
  return [overlaps, wrong];
})()"""


def users_of(reader, variable):
    """Steps that write and that read a variable."""
    pairs = [accesses_of_step(reader.kept_executable, step) for step in range(reader.n_steps)]
    return tuple(
        [step for step, pair in enumerate(pairs) if variable in pair[way]] for way in (1, 0)
    )


def test_tensors(page, reader):
    """A tensor's producers and consumers are the steps that write and read it."""
    names = reader.table("variables")["name"]
    variable = names.index("layer2/weights")
    writes, reads = users_of(reader, variable)
    assert writes
    assert reads
    page.show(hash=f"#/tensors?variable={variable}")
    assert f"{len(names)} tensors" in page.texts(selector=".tools .status")
    shown = page.texts(selector=".causes li")
    assert [int(text.split(":")[0]) for text in shown] == [*writes, *reads]
    lives = page.attribute(selector=".row[aria-selected='true'] .life", name="title")
    assert lives == "always"
    assert page.count(selector=".life i") > page.count(selector=".life i.always") > 0


def test_graph(page, reader):
    """Boxes fold and unfold; a chosen one lists what it uses and makes; lines lead down."""
    page.show(hash="#/graph")
    assert page.evaluate(code=_LAYOUT) == [0, 0]
    n_all = whole(page.text(selector=".status").split(" of ")[1].split(" ")[0])
    page.click(selector="button:text-is('Fold all')")
    page.settle()
    n_folded = whole(page.text(selector=".status").split(" of ")[0])
    assert 1 <= n_folded < n_all
    page.click(selector="button:text-is('Unfold all')")
    page.settle()
    assert whole(page.text(selector=".status").split(" of ")[0]) == n_all
    page.show(hash="#/graph?op=layer2/product")
    assert page.count(selector="h2:text-is('layer2/product')") == 1
    used = {reader.table("variables")["name"][v] for v in accessed_by(reader, "layer2/product")}
    listed = set(page.texts(selector=".rows .row .cell:first-child"))
    assert "layer2/weights" in listed
    assert listed <= used
    page.focus(selector=".graph-map canvas")
    page.press(key="ArrowUp")
    page.settle()
    assert "op=layer1" in page.hash()


def accessed_by(reader, prefix):
    """Variables that steps of a name read or write."""
    result = set()
    for step, path in enumerate(reader.table("steps")["path"]):
        if path.startswith(prefix):
            for accessed in accesses_of_step(reader.kept_executable, step):
                result |= set(accessed.tolist())
    return result


_TITLES = """(async () => {
  const { titlesOf } = await import("/page/views/graph.js");
  const named = (path) => ({ path, name: path.split(/[/.]/).at(-1) });
  return titlesOf(["model/blocks.0", "model/head", "stage1/add", "stage2/add", "relu"].map(named));
})()"""


def test_titles_of_boxes(page):
    """A bare number gets the name of its module, equal names get what tells them apart."""
    expected = ["blocks.0", "head", "stage1/add", "stage2/add", "relu"]
    assert page.evaluate(code=_TITLES) == expected
