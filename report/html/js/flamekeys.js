// SPDX-License-Identifier: Apache-2.0
// flamekeys.js: a flame graph by pointer and keyboard, and as a table.

const maxBoxRows = 200;

function watchFlame(g) {
  const box = part(g, "flame"), canvas = part(g, "flame-canvas"), tip = part(g, "flame-tip");
  const under = (event) => {
    const place = canvas.getBoundingClientRect();
    return boxAt(g, event.clientX - place.left, event.clientY - place.top);
  };
  box.addEventListener("pointermove", (event) => {
    const b = under(event), node = b ? b.node : -1;
    if (node !== g.hover) {
      g.hover = node;
      drawFlame(g);
    }
    canvas.classList.toggle("over", node >= 0);
    if (!b) tip.hidden = true;
    else showTip(tip, event, flameTip(g, b));
  });
  box.addEventListener("pointerleave", () => {
    g.hover = -1;
    tip.hidden = true;
    drawFlame(g);
  });
  box.addEventListener("click", (event) => {
    const b = under(event);
    if (b && b.node >= 0) zoomTo(g, b.node === g.zoom && b.node > 0 ? g.tree.parent[b.node] : b.node);
  });
  box.addEventListener("keydown", (event) => flameKey(g, event));
  box.addEventListener("focus", () => {
    if (g.focus < 0) look(g, { focus: g.zoom });
    say(g, g.focus);
  });
  part(g, "boxes").addEventListener("toggle", () => showBoxes(g));
  part(g, "search").addEventListener("input", (event) => look(g, { query: event.target.value }));
  part(g, "regex").addEventListener("click", () => look(g, { regex: !g.regex }));
}

function flameTip(g, b) {
  if (b.node < 0) return [element("strong", {}, "Frames too narrow to draw"), element("span", {}, bytesText(b.bytes)), element("span", { class: "soft" }, "Zoom in to see them")];
  const frame = g.tree.frame[b.node];
  return [element("strong", {}, frame === 0 ? "all" : book.fullNames[frame]), element("span", { class: "soft" }, book.places[frame]), element("span", {}, nodeWords(g, b.node)), ...g.words.more(b.node).map((text) => element("span", {}, text))];
}

function flameKey(g, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const t = g.tree, at = g.focus < 0 ? g.zoom : g.focus;
  let to = -1;
  switch (event.key) {
    case "ArrowUp": to = t.parent[at]; break;
    case "ArrowDown": to = at === foldedNode(g) ? -1 : widestBelow(g, at); break;
    case "ArrowLeft": to = beside(g, at, -1); break;
    case "ArrowRight": to = beside(g, at, 1); break;
    case "Home": to = 0; break;
    case "Enter":
    case " ":
      event.preventDefault();
      zoomTo(g, at);
      return;
    case "Backspace":
      event.preventDefault();
      if (g.zoom > 0) zoomTo(g, t.parent[g.zoom]);
      return;
    default: return;
  }
  event.preventDefault();
  if (to < 0) return;
  look(g, t.depth[to] < t.depth[g.zoom] ? { focus: to, zoom: to } : { focus: to }); // above the zoomed one: follow
  say(g, to);
  keepInSight(g, to);
}

// widestBelow returns the child with the widest box.
function widestBelow(g, node) {
  const t = g.tree, folded = foldedNode(g);
  let best = -1;
  for (let c = t.first[node]; c >= 0; c = t.next[c]) if (t.sum[c] > 0 && c !== folded && (best < 0 || t.sum[c] > t.sum[best])) best = c;
  return best;
}

// beside returns the next box of the same row.
function beside(g, node, step) {
  const row = (g.rows[g.tree.depth[node]] || []).filter((b) => b.node >= 0);
  const i = row.findIndex((b) => b.node === node);
  const b = i < 0 ? null : row[i + step];
  return b ? b.node : -1;
}

function keepInSight(g, node) {
  const box = part(g, "flame"), y = g.tree.depth[node] * flameRow;
  if (y < box.scrollTop) box.scrollTop = y;
  else if (y + 2 * flameRow > box.scrollTop + box.clientHeight) box.scrollTop = y + 2 * flameRow - box.clientHeight;
}

// showBoxes lists the drawn boxes for screen readers, while the list is open.
function showBoxes(g) {
  if (!part(g, "boxes").open) return;
  const t = g.tree;
  const nodes = g.boxes.filter((b) => b.node >= 0).map((b) => b.node).sort((a, b) => t.sum[b] - t.sum[a]).slice(0, maxBoxRows).sort((a, b) => a - b);
  part(g, "boxes").querySelector("tbody").replaceChildren(...nodes.map((node) => element("tr", {},
    element("td", { class: "number" }, String(t.depth[node])),
    element("td", {}, element("button", { type: "button", class: "link", onclick: () => zoomTo(g, node) }, t.frame[node] === 0 ? "all" : book.names[t.frame[node]])),
    element("td", {}, book.places[t.frame[node]]),
    element("td", { class: "number" }, bytesText(t.sum[node])),
    element("td", { class: "number" }, shareText(t.sum[node], t.sum[0])))));
}

// showLeaf moves a graph to an entry of its tree: it zooms out until the entry's box is wide enough.
function showLeaf(g, entry) {
  const t = g.tree, leaf = t.at[entry], path = pathTo(t, leaf);
  g.focus = leaf;
  g.zoom = path.find((node) => t.sum[node] > 0 && t.sum[leaf] / t.sum[node] * g.width >= 60) || 0;
}

// select shows a site, and marks its path in the graph.
function select(entry) {
  if (entry >= 0) showLeaf(sites, entry);
  change({ entry, fold: state.fold && !(entry >= 0 && isBefore(entry)) });
  if (entry >= 0) say(sites, sites.focus, "Selected ");
}

// showSearch shows what the search of a graph found.
function showSearch(g) {
  part(g, "regex").setAttribute("aria-pressed", g.regex);
  const box = part(g, "search"), matched = part(g, "matched");
  if (box.value !== g.query) box.value = g.query;
  box.setAttribute("aria-invalid", g.badQuery);
  matched.textContent = g.badQuery ? "not a regular expression" : g.searching ? `${bytesText(g.matched)} matched, ${shareText(g.matched, g.tree.sum[0])}` : "";
  matched.dataset.bytes = g.matched;
}

// showGraph shows a graph and what belongs to it.
function showGraph(g) {
  showSearch(g);
  showCrumbs(g);
  drawFlame(g);
  showBoxes(g);
}
