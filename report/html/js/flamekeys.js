// SPDX-License-Identifier: Apache-2.0
// flamekeys.js: the flame graph by pointer and keyboard, and as a table.

const maxBoxRows = 200;

function watchFlame() {
  const box = byId("flame"), canvas = byId("flame-canvas"), tip = byId("flame-tip");
  const under = (event) => {
    const place = canvas.getBoundingClientRect();
    const b = boxAt(event.clientX - place.left, event.clientY - place.top);
    return b;
  };
  box.addEventListener("pointermove", (event) => {
    const b = under(event), node = b ? b.node : -1;
    if (node !== flame.hover) {
      flame.hover = node;
      drawFlame();
    }
    canvas.classList.toggle("over", node >= 0);
    if (!b) tip.hidden = true;
    else showTip(tip, event, flameTip(b));
  });
  box.addEventListener("pointerleave", () => {
    flame.hover = -1;
    tip.hidden = true;
    drawFlame();
  });
  box.addEventListener("click", (event) => {
    const b = under(event);
    if (b && b.node >= 0) zoomTo(b.node === state.zoom && b.node > 0 ? view.tree.parent[b.node] : b.node);
  });
  box.addEventListener("keydown", flameKey);
  box.addEventListener("focus", () => {
    if (state.focus < 0) change({ focus: state.zoom });
    say(state.focus < 0 ? state.zoom : state.focus);
  });
  byId("boxes").addEventListener("toggle", showBoxes);
}

function flameTip(b) {
  if (b.node < 0) return [element("strong", {}, "Frames too narrow to draw"), element("span", {}, bytesText(b.width * view.tree.sum[state.zoom] / flame.width)), element("span", { class: "soft" }, "Zoom in to see them")];
  const frame = view.tree.frame[b.node];
  return [element("strong", {}, frame === 0 ? "all" : book.names[frame]), element("span", { class: "soft" }, book.places[frame]), element("span", {}, nodeWords(b.node))];
}

function flameKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const t = view.tree, at = state.focus < 0 ? state.zoom : state.focus;
  let to = -1;
  switch (event.key) {
    case "ArrowUp": to = t.parent[at]; break;
    case "ArrowDown": to = widestBelow(t, at); break;
    case "ArrowLeft": to = beside(at, -1); break;
    case "ArrowRight": to = beside(at, 1); break;
    case "Home": to = 0; break;
    case "Enter":
    case " ":
      event.preventDefault();
      zoomTo(at);
      return;
    case "Backspace":
      event.preventDefault();
      if (state.zoom > 0) zoomTo(t.parent[state.zoom]);
      return;
    default: return;
  }
  event.preventDefault();
  if (to < 0) return;
  const part = { focus: to };
  if (t.depth[to] < t.depth[state.zoom]) part.zoom = to; // above the zoomed one: follow
  change(part);
  say(to);
  keepInSight(to);
}

// widestBelow returns the child with the most bytes.
function widestBelow(t, node) {
  let best = -1;
  for (let c = t.first[node]; c >= 0; c = t.next[c]) if (t.sum[c] > 0 && (best < 0 || t.sum[c] > t.sum[best])) best = c;
  return best;
}

// beside returns the next box of the same row.
function beside(node, step) {
  const row = (flame.rows[view.tree.depth[node]] || []).filter((b) => b.node >= 0);
  const i = row.findIndex((b) => b.node === node);
  const b = i < 0 ? null : row[i + step];
  return b ? b.node : -1;
}

function keepInSight(node) {
  const box = byId("flame"), y = view.tree.depth[node] * flame.row;
  if (y < box.scrollTop) box.scrollTop = y;
  else if (y + 2 * flame.row > box.scrollTop + box.clientHeight) box.scrollTop = y + 2 * flame.row - box.clientHeight;
}

// showBoxes lists the drawn boxes for screen readers, while the list is open.
function showBoxes() {
  if (!byId("boxes").open) return;
  const t = view.tree;
  const nodes = flame.boxes.filter((b) => b.node >= 0).map((b) => b.node).sort((a, b) => t.sum[b] - t.sum[a]).slice(0, maxBoxRows).sort((a, b) => a - b);
  byId("boxes").querySelector("tbody").replaceChildren(...nodes.map((node) => element("tr", {},
    element("td", { class: "number" }, String(t.depth[node])),
    element("td", {}, element("button", { type: "button", class: "link", onclick: () => zoomTo(node) }, t.frame[node] === 0 ? "all" : book.names[t.frame[node]])),
    element("td", {}, book.places[t.frame[node]]),
    element("td", { class: "number" }, bytesText(t.sum[node])),
    element("td", { class: "number" }, shareText(t.sum[node], t.sum[0])))));
}

// select shows a site: it marks the site's path in the graph, and zooms in until the path is
// visible.
function select(entry) {
  const part = { entry };
  if (entry >= 0) {
    const t = view.tree, leaf = t.at[entry], path = pathTo(t, leaf);
    part.focus = leaf;
    part.zoom = path.find((node) => t.sum[node] > 0 && t.sum[leaf] / t.sum[node] * flame.width >= 60) || 0;
  }
  change(part);
  if (entry >= 0) say(part.focus, "Selected ");
}
