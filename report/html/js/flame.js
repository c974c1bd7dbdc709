// SPDX-License-Identifier: Apache-2.0
// flame.js: flame graphs, root on top. Only boxes of at least a pixel are drawn, so the time that it
// takes goes with the width of the window and not with the number of sites.

// newGraph returns a flame graph, the reader's choice in it, and what was drawn last. Its elements
// have ids with a prefix: "kept-flame", "kept-search".
function newGraph(prefix, words) {
  return {
    prefix, tree: null, words, // words.above: what the node above is; words.more(node): more texts about a node
    zoom: 0, focus: -1, query: "", regex: false, // chosen
    folded: -1, total: 0, matched: 0, searching: false, badQuery: false, // results of update
    width: 0, rows: [], boxes: [], hover: -1, marked: new Set(), // drawn
  };
}

const flameRow = 21, foldedWidth = 22;
const part = (g, id) => byId(g.prefix + id);
const boxClasses = ["user-python", "library-python", "user-native", "library-native", "remark", "root"];

// layOut computes the boxes of the zoomed node's ancestors, of the node itself over the whole
// width, and of all nodes below it. Siblings too narrow for a box of their own share one, whose
// node is -1. A folded node has a narrow box at the right.
function layOut(g) {
  const t = g.tree, zoom = g.zoom;
  g.boxes = [];
  const path = pathTo(t, zoom);
  for (const node of path) g.boxes.push({ node, x: 0, width: g.width, depth: t.depth[node] });
  const folded = g.folded = foldedNode(g), room = g.width - (folded < 0 ? 0 : foldedWidth);
  const whole = t.sum[zoom] - (folded < 0 ? 0 : t.sum[folded]);
  if (whole > 0) layOutBelow(g, zoom, 0, room / whole);
  if (folded >= 0) g.boxes.push({ node: folded, x: room, width: foldedWidth, depth: 1 });
  g.rows = [];
  for (const box of g.boxes) (g.rows[box.depth] || (g.rows[box.depth] = [])).push(box);
}

function layOutBelow(g, parent, x, scale) {
  const t = g.tree;
  const depth = t.depth[parent] + 1;
  let rest = null;
  for (let node = t.first[parent]; node >= 0; node = t.next[node]) {
    const width = t.sum[node] * scale;
    if (width <= 0 || node === g.folded) continue;
    if (width >= 1) {
      rest = null;
      g.boxes.push({ node, x, width, depth });
      layOutBelow(g, node, x, scale);
    } else if (rest) {
      rest.width += width;
      rest.bytes += t.sum[node];
    } else {
      rest = { node: -1, x, width, depth, bytes: t.sum[node] };
      g.boxes.push(rest);
    }
    x += width;
  }
}

function drawFlame(g) {
  const box = part(g, "flame");
  g.width = box.clientWidth;
  layOut(g);
  const height = Math.max(g.rows.length, 1) * flameRow + 1;
  const pen = sharp(part(g, "flame-canvas"), g.width, height);
  pen.clearRect(0, 0, g.width, height);
  pen.textBaseline = "middle";
  pen.font = "12px system-ui, sans-serif";
  for (const b of g.boxes) drawBox(g, pen, b);
  const outline = (b, name, thick) => {
    if (!b) return;
    pen.strokeStyle = color(name);
    pen.lineWidth = thick;
    pen.strokeRect(b.x + thick / 2, b.depth * flameRow + thick / 2, Math.max(b.width - thick, 1), flameRow - thick);
  };
  outline(boxOf(g, g.hover), "text", 1);
  outline(boxOf(g, g.focus), "focus", 2.5);
  box.dataset.total = g.total;
  box.dataset.drawn = g.tree.sum[0];
  box.dataset.boxes = g.boxes.length;
}

function drawBox(g, pen, b) {
  const y = b.depth * flameRow, t = g.tree;
  const width = Math.max(b.width - (b.width > 3 ? 1 : 0), 0.5);
  if (b.node < 0) {
    pen.fillStyle = color("box-rest");
    pen.fillRect(b.x, y, width, flameRow - 1);
    return;
  }
  const frame = t.frame[b.node], name = boxClasses[book.classes[frame]];
  const hit = g.searching && t.hit[b.node] === 2;
  pen.globalAlpha = g.searching && !t.hit[b.node] ? 0.3 : t.depth[b.node] < t.depth[g.zoom] ? 0.6 : 1;
  pen.fillStyle = color(hit ? "box-hit" : "box-" + name);
  pen.fillRect(b.x, y, width, flameRow - 1);
  if (!hit && (frame & 1) === 1 && name !== "root") { // neighbours stay apart where their kind is the same
    pen.fillStyle = color("box-shade");
    pen.fillRect(b.x, y, width, flameRow - 1);
  }
  if (g.marked.has(b.node)) {
    pen.fillStyle = color("focus");
    pen.fillRect(b.x, y + flameRow - 4, width, 3);
  }
  if (b.node === g.folded) {
    pen.fillStyle = color("box-" + name + "-text");
    pen.fillText("+", b.x + b.width / 2 - 4, y + flameRow / 2);
  } else if (b.width > 28) {
    pen.fillStyle = color(hit ? "box-hit-text" : "box-" + name + "-text");
    boxText(pen, b, frame, y + flameRow / 2);
  }
  pen.globalAlpha = 1;
}

// boxText writes the name and, if there is room, the file.
function boxText(pen, b, frame, y) {
  const name = frame === 0 ? "all" : book.names[frame], room = b.width - 9;
  const text = fitted(pen, name, room);
  pen.fillText(text, b.x + 4, y);
  const place = book.places[frame], used = pen.measureText(text).width + 8;
  if (text === name && place && room - used > 40) {
    const short = fitted(pen, place.slice(place.lastIndexOf("/") + 1), room - used);
    const alpha = pen.globalAlpha;
    pen.globalAlpha = alpha * 0.7;
    if (short.length > 3) pen.fillText(short, b.x + 4 + used, y);
    pen.globalAlpha = alpha;
  }
}

// fitted cuts a text at the right. It measures only a few times, however long the text is.
function fitted(pen, text, room) {
  text = text.slice(0, Math.ceil(room / 3) + 1);
  const width = pen.measureText(text).width;
  if (width <= room) return text;
  let n = Math.max(1, Math.floor(text.length * room / width) - 1);
  while (n > 1 && pen.measureText(text.slice(0, n) + "…").width > room) n--;
  return text.slice(0, n) + "…";
}

const boxOf = (g, node) => (node < 0 ? null : (g.rows[g.tree.depth[node]] || []).find((b) => b.node === node) || null);

// boxAt returns the box at a point of the graph.
function boxAt(g, x, y) {
  const row = g.rows[Math.floor(y / flameRow)];
  if (!row) return null;
  let low = 0, high = row.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (row[middle].x <= x) low = middle;
    else high = middle - 1;
  }
  return row[low].x <= x && x < row[low].x + row[low].width ? row[low] : null;
}

// frameWords returns a frame in one line.
const frameWords = (frame) => (frame === 0 ? "all" : book.names[frame] + (book.places[frame] ? ", " + book.places[frame] : ""));

// nodeWords describes a node in one line.
function nodeWords(g, node) {
  const t = g.tree, parent = t.parent[node];
  let text = `${bytesText(t.sum[node])}, ${shareText(t.sum[node], t.sum[0])} of all`;
  if (parent > 0) text += `, ${shareText(t.sum[node], t.sum[parent])} of ${g.words.above}`;
  if (node === foldedNode(g)) return text + ", folded: click or press Enter to show it";
  if (t.own[node] > 0 && t.own[node] < t.sum[node]) text += `, ${bytesText(t.own[node])} in itself`;
  return text;
}

function zoomTo(g, node) {
  if (node === foldedNode(g)) {
    look(g, { focus: node });
    change({ fold: false });
    return;
  }
  look(g, { zoom: node, focus: node });
  say(g, node, "Zoomed into ");
  g.words.zoomed?.(node);
}

// say announces the selected node to screen readers.
function say(g, node, before = "") {
  if (node < 0) return;
  const t = g.tree;
  byId("spoken").textContent = `${before}${frameWords(t.frame[node])}: ${[nodeWords(g, node), ...g.words.more(node)].join(", ")}, level ${t.depth[node]}`;
}

function showCrumbs(g) {
  const t = g.tree, path = pathTo(t, g.zoom);
  const crumbs = [];
  path.forEach((node, i) => {
    if (path.length > 7 && i > 1 && i < path.length - 4) {
      if (i === 2) crumbs.push(element("span", {}, "…"));
      return;
    }
    const name = t.frame[node] === 0 ? "all" : book.names[t.frame[node]];
    crumbs.push(element("button", { type: "button", title: name, "aria-current": i === path.length - 1 ? "location" : null, onclick: () => zoomTo(g, node) }, name));
  });
  part(g, "crumbs").replaceChildren(...crumbs);
  part(g, "crumbs").hidden = path.length < 2;
}
