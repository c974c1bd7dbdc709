// SPDX-License-Identifier: Apache-2.0 flame.js: the flame graph, root on top. Only boxes of at
// least a pixel are drawn, so the time that it takes goes with the width of the window and not with
// the number of sites.

const flame = { row: 21, width: 0, rows: [], boxes: [], hover: -1 };
const boxClasses = ["user-python", "library-python", "user-native", "library-native", "remark", "root"];

// layOut computes the boxes of the zoomed node's ancestors, of the node itself over the whole
// width, and of all nodes below it. Siblings too narrow for a box of their own share one, whose
// node is -1.
function layOut() {
  const t = view.tree, zoom = state.zoom;
  flame.boxes = [];
  const path = pathTo(t, zoom);
  for (const node of path) flame.boxes.push({ node, x: 0, width: flame.width, depth: t.depth[node] });
  const whole = t.sum[zoom];
  if (whole > 0) layOutBelow(t, zoom, 0, flame.width / whole);
  flame.rows = [];
  for (const box of flame.boxes) (flame.rows[box.depth] || (flame.rows[box.depth] = [])).push(box);
}

function layOutBelow(t, parent, x, scale) {
  const depth = t.depth[parent] + 1;
  let rest = null;
  for (let node = t.first[parent]; node >= 0; node = t.next[node]) {
    const width = t.sum[node] * scale;
    if (width <= 0) continue;
    if (width >= 1) {
      rest = null;
      flame.boxes.push({ node, x, width, depth });
      layOutBelow(t, node, x, scale);
    } else if (rest) {
      rest.width += width;
    } else {
      rest = { node: -1, x, width, depth };
      flame.boxes.push(rest);
    }
    x += width;
  }
}

function drawFlame() {
  const box = byId("flame");
  flame.width = box.clientWidth;
  layOut();
  const height = Math.max(flame.rows.length, 1) * flame.row + 1;
  const pen = sharp(byId("flame-canvas"), flame.width, height);
  pen.clearRect(0, 0, flame.width, height);
  pen.textBaseline = "middle";
  pen.font = "12px system-ui, sans-serif";
  const marked = new Set(state.entry >= 0 ? pathTo(view.tree, view.tree.at[state.entry]) : []);
  for (const b of flame.boxes) drawBox(pen, b, marked);
  const outline = (b, name, thick) => {
    if (!b) return;
    pen.strokeStyle = color(name);
    pen.lineWidth = thick;
    pen.strokeRect(b.x + thick / 2, b.depth * flame.row + thick / 2, Math.max(b.width - thick, 1), flame.row - thick);
  };
  outline(boxOf(flame.hover), "text", 1);
  outline(boxOf(state.focus), "focus", 2.5);
  box.dataset.total = view.total;
  box.dataset.drawn = view.tree.sum[0];
  box.dataset.boxes = flame.boxes.length;
}

function drawBox(pen, b, marked) {
  const y = b.depth * flame.row, t = view.tree;
  const width = Math.max(b.width - (b.width > 3 ? 1 : 0), 0.5);
  if (b.node < 0) {
    pen.fillStyle = color("box-rest");
    pen.fillRect(b.x, y, width, flame.row - 1);
    return;
  }
  const frame = t.frame[b.node], name = boxClasses[book.classes[frame]];
  const hit = view.searching && t.hit[b.node] === 2;
  pen.globalAlpha = view.searching && !t.hit[b.node] ? 0.3 : t.depth[b.node] < t.depth[state.zoom] ? 0.6 : 1;
  pen.fillStyle = color(hit ? "box-hit" : "box-" + name);
  pen.fillRect(b.x, y, width, flame.row - 1);
  if (!hit && (frame & 1) === 1 && name !== "root") { // neighbours stay apart where their kind is the same
    pen.fillStyle = color("box-shade");
    pen.fillRect(b.x, y, width, flame.row - 1);
  }
  if (marked.has(b.node)) {
    pen.fillStyle = color("focus");
    pen.fillRect(b.x, y + flame.row - 4, width, 3);
  }
  if (b.width > 28) {
    pen.fillStyle = color(hit ? "box-hit-text" : "box-" + name + "-text");
    boxText(pen, b, frame, y + flame.row / 2);
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

const boxOf = (node) => (node < 0 ? null : (flame.rows[view.tree.depth[node]] || []).find((b) => b.node === node) || null);

// boxAt returns the box at a point of the graph.
function boxAt(x, y) {
  const row = flame.rows[Math.floor(y / flame.row)];
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
function nodeWords(node) {
  const t = view.tree, parent = t.parent[node];
  let text = `${bytesText(t.sum[node])}, ${shareText(t.sum[node], t.sum[0])} of all`;
  if (parent > 0) text += `, ${shareText(t.sum[node], t.sum[parent])} of its caller`;
  if (t.own[node] > 0 && t.own[node] < t.sum[node]) text += `, ${bytesText(t.own[node])} in itself`;
  return text;
}

function zoomTo(node) {
  change({ zoom: node, focus: node });
  say(node, "Zoomed into ");
}

// say announces the selected node to screen readers.
function say(node, before = "") {
  if (node < 0) return;
  const t = view.tree;
  byId("spoken").textContent = `${before}${frameWords(t.frame[node])}: ${nodeWords(node)}, level ${t.depth[node]}`;
}

function showCrumbs() {
  const t = view.tree, path = pathTo(t, state.zoom);
  const crumbs = [];
  path.forEach((node, i) => {
    if (path.length > 7 && i > 1 && i < path.length - 4) {
      if (i === 2) crumbs.push(element("span", {}, "…"));
      return;
    }
    const name = t.frame[node] === 0 ? "all" : book.names[t.frame[node]];
    crumbs.push(element("button", { type: "button", title: name, "aria-current": i === path.length - 1 ? "location" : null, onclick: () => zoomTo(node) }, name));
  });
  byId("crumbs").replaceChildren(...crumbs);
  byId("crumbs").hidden = path.length < 2;
}
