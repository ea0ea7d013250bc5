// A layered layout of a graph: layers from top to bottom, few crossings, edges as curves around nodes.
// nodes: [{width, rank}] (rank: the order in which they run), edges: [{from, to}] as numbers of nodes.

const GAP_X = 26, GAP_Y = 46, N_SWEEPS = 6, N_STRAIGHTENINGS = 8, MOST_BENDS = 6000;

export function layered(nodes, edges, height) {
  // An edge to something that ran before closes a cycle: it has no say in the layers.
  const forward = edges.map(({ from, to }) => nodes[from].rank < nodes[to].rank || (nodes[from].rank === nodes[to].rank && from < to));
  const layer = layersOf(nodes, edges, forward);
  const { items, links, chains } = withBends(nodes, edges, forward, layer);
  const rows = ordered(items, links);
  straighten(rows, items, links);
  const top = (row) => row * (height + GAP_Y);
  const place = (item) => ({ x: item.x, y: top(item.layer) });
  const left = items.reduce((least, item) => Math.min(least, item.x - item.width / 2), Infinity);
  for (const item of items) item.x -= left;
  return {
    places: nodes.map((_, i) => place(items[i])),
    paths: edges.map((edge, i) => ({ isBack: !forward[i], bends: chains[i].map((k) => place(items[k])) })),
  };
}

// The longest way from a node without predecessors; nodes come in the order of their rank.
function layersOf(nodes, edges, forward) {
  const layer = new Int32Array(nodes.length), into = nodes.map(() => []);
  edges.forEach(({ from, to }, i) => forward[i] && into[to].push(from));
  const order = nodes.map((_, i) => i).sort((a, b) => nodes[a].rank - nodes[b].rank || a - b);
  for (const i of order) for (const from of into[i]) layer[i] = Math.max(layer[i], layer[from] + 1);
  return layer;
}

// Long edges get a bend in every layer they cross, so that nodes make room for them.
function withBends(nodes, edges, forward, layer) {
  const items = nodes.map((node, i) => ({ width: node.width, layer: layer[i], rank: node.rank })), links = [];
  const crossed = edges.reduce((sum, { from, to }, i) => sum + (forward[i] ? Math.max(0, layer[to] - layer[from] - 1) : 0), 0);
  const chains = edges.map(({ from, to }, i) => {
    const chain = [];
    if (!forward[i]) return chain;
    let last = from;
    for (let k = layer[from] + 1; crossed <= MOST_BENDS && k < layer[to]; k++) {
      items.push({ width: 6, layer: k, rank: nodes[from].rank });
      links.push([last, items.length - 1]);
      last = items.length - 1;
      chain.push(last);
    }
    links.push([last, to]);
    return chain;
  });
  return { items, links, chains };
}

// Rows of items; sweeping up and down, each goes to the middle of its neighbours.
function ordered(items, links) {
  const rows = [];
  items.forEach((item, i) => (rows[item.layer] ??= []).push(i));
  for (const row of rows) row.sort((a, b) => items[a].rank - items[b].rank);
  const above = items.map(() => []), below = items.map(() => []);
  for (const [from, to] of links) {
    below[from].push(to);
    above[to].push(from);
  }
  const number = () => rows.forEach((row) => row.forEach((i, place) => { items[i].place = place; }));
  const sort = (row, near) => {
    const middle = new Map(row.map((i) => [i, near[i].length ? near[i].reduce((sum, k) => sum + items[k].place, 0) / near[i].length : items[i].place]));
    row.sort((a, b) => middle.get(a) - middle.get(b));
    row.forEach((i, place) => { items[i].place = place; });
  };
  number();
  for (let sweep = 0; sweep < N_SWEEPS; sweep++) {
    if (sweep % 2) for (let k = rows.length - 2; k >= 0; k--) sort(rows[k], below);
    else for (let k = 1; k < rows.length; k++) sort(rows[k], above);
  }
  return rows;
}

// Coordinates: as near to the mean of all neighbours as order and widths allow.
function straighten(rows, items, links) {
  const near = items.map(() => []);
  for (const [from, to] of links) {
    near[from].push(to);
    near[to].push(from);
  }
  for (const row of rows) {
    let x = 0;
    for (const i of row) {
      items[i].x = x + items[i].width / 2;
      x += items[i].width + GAP_X;
    }
    for (const i of row) items[i].x -= x / 2;
  }
  for (let turn = 0; turn < N_STRAIGHTENINGS; turn++) {
    for (const row of turn % 2 ? rows.toReversed() : rows) settle(row, items, near);
  }
}

// Wishes are met from the left and from the right; the mean of both keeps order and distances.
function settle(row, items, near) {
  const wish = row.map((i) => (near[i].length ? near[i].reduce((sum, k) => sum + items[k].x, 0) / near[i].length : items[i].x));
  const apart = (k) => (items[row[k - 1]].width + items[row[k]].width) / 2 + GAP_X;
  const left = wish.slice(), right = wish.slice();
  for (let k = 1; k < row.length; k++) left[k] = Math.max(left[k], left[k - 1] + apart(k));
  for (let k = row.length - 2; k >= 0; k--) right[k] = Math.min(right[k], right[k + 1] - apart(k + 1));
  row.forEach((i, k) => { items[i].x = (left[k] + right[k]) / 2; });
}
