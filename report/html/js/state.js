// SPDX-License-Identifier: Apache-2.0
// state.js: the reader's choice, and the bytes that follow from it.

const later = []; // what a page that is served does when it is shown

const state = {
  metric: "use", // use, peak, growth, alloc, leak
  from: 0, to: 0, // moments; the same but for growth
  process: -1, // -1: all
  group: "", // a pod or job, "": all
  gpu: -2, // -2: all GPUs, -1: what is in the sum of no GPU
  planes: new Set(),
  hide: true, // library frames
  fold: true, // what is from before the attach
  entry: -1, keeper: -1, // the selected ones
  view: "allocated", // what was used last: allocated, kept
};

// sites is the graph of who allocated memory; graphs are all that the page has.
const sites = newGraph("", { above: "its caller", more: () => [] }); // its table: sites.js
const graphs = [sites];

const metrics = [
  ["use", "In use", "live at the moment chosen above"],
  ["peak", "Peak", "live when most was"],
  ["growth", "Growth", "live at the end of the range and not at its start"],
  ["alloc", "Allocated", "allocated since the attach, freed or not"],
  ["leak", "Leaked", "allocated since the attach and never freed"],
];

const needsChart = (metric) => metric === "peak" || metric === "growth";

const openingMoment = () => (data.opening ? data.opening.moment : book.moments - 1);

function resetState() {
  Object.assign(state, {
    metric: "use", from: openingMoment(), to: openingMoment(), process: -1, group: "", gpu: -2, planes: new Set(data.planes.keys()),
    hide: true, fold: true, entry: -1, keeper: -1, view: "allocated",
  });
  for (const g of [sites, keepers]) Object.assign(g, { query: "", regex: false, zoom: 0, focus: -1, sort: "bytes", down: true, page: 0 });
}

// chosen reports whether an entry passes the filters.
const chosen = (e) => passes(e) && (apartWord(e) !== "") === (state.gpu === -1) && (state.gpu < 0 || data.entries.gpu[e] === state.gpu);

// passes is chosen, whatever the GPU.
const passes = (e) => processChosen(data.entries.process[e]) && state.planes.has(data.entries.plane[e]);

const processChosen = (p) => (state.process < 0 || p === state.process) && (state.group === "" || book.groups[p] === state.group);

const rowChosen = (row) => processChosen(row.process) && (state.gpu < 0 || row.gpu === state.gpu);

// isLeak reports whether an entry leaks: by its verdict, or without verdicts if it was allocated in
// the session and is live at the end.
function isLeak(e) {
  const d = data.entries, plane = data.planes[d.plane[e]];
  if (data.verdicts) return verdictClass(e) === "leaking";
  return d.kind[e] > 0 && plane !== "cache" && d.live[e] > 0;
}

const verdictText = (e) => data.strings[data.entries.verdict[e]];
const verdictClass = (e) => data.strings[data.entries.class[e]];

function bytesOf(e) {
  const d = data.entries;
  switch (state.metric) {
    case "alloc": return d.alloc[e];
    case "leak": return isLeak(e) ? d.live[e] : 0;
    case "growth": return levelAt(e, state.to) - levelAt(e, state.from);
  }
  return state.to === book.moments - 1 ? d.live[e] : levelAt(e, state.to); // the end is known in more detail
}

// objectsOf returns null where a count is unknown: between the begin and the end.
function objectsOf(e) {
  const d = data.entries;
  if (state.metric === "alloc") return d.allocObjects[e];
  if (state.metric === "leak" || state.metric !== "growth" && state.to === book.moments - 1) return d.objects[e];
  return null;
}

// peakMoment returns the moment at which the chosen memory was highest.
function peakMoment() {
  if (data.chart.peak >= 0 && state.process < 0 && state.group === "" && state.gpu === -2 && state.planes.size === data.planes.length) return data.chart.peak; // as in other reports
  const sums = new Float64Array(book.moments);
  for (let e = 0; e < book.entries; e++) {
    if (!chosen(e) || !book.start) continue;
    for (let k = book.start[e]; k < book.start[e + 1]; k++) {
      sums[book.step[k]] += book.level[k] - (k > book.start[e] ? book.level[k - 1] : 0);
    }
  }
  let best = 0, level = 0, highest = -Infinity;
  for (let m = 0; m < book.moments; m++) {
    level += sums[m];
    if (level > highest) {
      highest = level;
      best = m;
    }
  }
  return best;
}

// folds reports whether memory from before the attach is folded in a tree: never if there is no other.
const folds = (t) => state.fold && t.before > 0 && t.sum[t.before] > 0 && t.sum[t.before] < t.sum[0];

// beforeText names what is folded: nothing of processes that began within the session is older.
const beforeText = () => (data.processes.every((p) => p.begin > 0) ? "in CUDA contexts" : "from before the attach");

// foldedNode returns the node that is drawn folded; -1 without one.
const foldedNode = (g) => (g.zoom === 0 && folds(g.tree) ? g.tree.before : -1);

const isBefore = (e) => data.planes[data.entries.plane[e]] === "before";

// update computes everything that depends on the choice.
function update() {
  if (state.metric === "peak") state.from = state.to = peakMoment();
  updateGraph(sites, currentTree(), (e) => (chosen(e) ? bytesOf(e) : 0));
  sites.marked = new Set(state.entry >= 0 ? pathTo(sites.tree, sites.tree.at[state.entry]) : []);
  updateKept();
}

// updateGraph adds the bytes of a graph's entries up.
function updateGraph(g, tree, of) {
  const n = tree.at.length;
  g.tree = tree;
  g.bytes = g.bytes || new Float64Array(n);
  g.total = g.less = g.matched = 0;
  for (let e = 0; e < n; e++) {
    const bytes = g.bytes[e] = of(e);
    g.total += bytes;
    if (bytes < 0) g.less -= bytes;
  }
  addUp(tree, g.bytes);
  let matcher = null;
  g.badQuery = false;
  try {
    matcher = newMatcher(g.query, g.regex);
  } catch {
    g.badQuery = true;
  }
  search(tree, matcher);
  g.searching = matcher !== null;
  g.full = tree === book.own ? book.full : tree; // hidden frames are found too
  if (g.full !== tree) search(g.full, matcher);
  for (let e = 0; matcher && e < n; e++) {
    if (!found(g, e)) continue;
    tree.hit[tree.at[e]] ||= 1;
    g.matched += Math.max(g.bytes[e], 0);
  }
  if (g.zoom >= tree.size || g.zoom > 0 && !data.live && !(tree.sum[g.zoom] > 0)) g.zoom = 0; // what follows a session comes and goes
  if (g.focus >= tree.size || g.focus >= 0 && !(tree.sum[g.focus] > 0)) g.focus = -1;
}

// found reports whether a search found an entry.
const found = (g, e) => g.full.hit[g.full.at[e]] > 0;

// change applies a part of the choice; the page follows before the next frame is painted.
let waiting = false;
function change(part) {
  Object.assign(state, part);
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    update();
    show();
  });
}

// look changes the choice in one graph.
function look(g, part) {
  Object.assign(g, part);
  if ("query" in part || "regex" in part) g.page = 0;
  change({});
}

// filter changes what is shown everywhere.
function filter(part) {
  for (const g of graphs) g.page = 0;
  change(part);
}

// setRange chooses a moment, or the growth between two.
function setRange(from, to) {
  const top = book.moments - 1;
  from = Math.max(0, Math.min(from, top));
  to = Math.max(0, Math.min(to, top));
  if (from > to) [from, to] = [to, from];
  change({ from, to, metric: from === to ? "use" : "growth" });
}

function setMetric(metric) {
  const part = { metric };
  if (metric === "growth" && state.from === state.to) Object.assign(part, { from: 0, to: book.moments - 1 });
  if (metric === "use") part.from = state.to;
  if (metric === "alloc" || metric === "leak") part.from = part.to = book.moments - 1;
  filter(part);
}
