// SPDX-License-Identifier: Apache-2.0
// updates.js: replaces the data of the page, and keeps the reader's choice and place.

// receive takes sections that have changed since the data with the id after; "": all of them.
function receive(after, next) {
  if (after !== "" && after !== live.id) return false;
  sections = after === "" ? next : { ...sections, ...next };
  Object.assign(live, { id: sections.id, age: sections.age, heard: performance.now() });
  adopt(structuredClone(sections));
  return true;
}

// adopt shows other data.
function adopt(next) {
  if (addressTimer) writeAddress(); // a choice of just now, in the terms of its data
  const choice = rememberChoice(), place = rememberPlace();
  data = next;
  openBook();
  openKept();
  chart.key = "";
  for (const g of [sites, keepers]) Object.assign(g, { bytes: null, legend: null, hover: -1 });
  restoreChoice(choice);
  fill();
  fillErrors();
  fillPast();
  update();
  restoreHover(choice);
  show(false);
  shownAddress = addressOf();
  restorePlace(place);
  showLive();
  document.documentElement.dataset.updates = Number(document.documentElement.dataset.updates || 0) + 1;
}

// rememberChoice returns the choice in names and times, which other data has too.
function rememberChoice() {
  const last = book.moments - 1, growth = state.metric === "growth", at = (m) => (m === last ? Infinity : m === 0 && growth ? -Infinity : beginOfDay() + book.times[m] / 1e6);
  return {
    from: at(state.from), to: at(state.to), process: state.process < 0 ? "" : processKeys()[state.process], name: state.process < 0 ? "" : data.processes[state.process].name,
    gpu: state.gpu < 0 ? state.gpu : gpuKeys()[state.gpu], entry: state.entry < 0 ? null : siteNames(state.entry), keeper: state.keeper < 0 ? "" : holderName(state.keeper),
    graphs: graphs.map((g) => ({ g, zoom: wantedZoom(g), focus: g.focus < 0 ? null : nodeNames(g.tree, g.focus), hover: g.hover < 0 ? null : nodeNames(g.tree, g.hover) })),
  };
}

const siteNames = (e) => ({ text: entryText(e), names: nodeNames(book.full, data.entries.node[e]) });

// wantedZoom returns the names of the zoomed node; if it was not there lately and the reader has not
// moved since, those of the node that it stands in for.
function wantedZoom(g) {
  if (!(g.wanted && g.zoom === g.instead)) g.wanted = g.zoom ? nodeNames(g.tree, g.zoom) : [];
  return g.wanted;
}

function restoreChoice(was) {
  const last = book.moments - 1, moment = (ms) => (ms === Infinity ? last : ms === -Infinity ? 0 : nearest((ms - beginOfDay()) * 1e6));
  const whole = state.metric === "growth";
  Object.assign(state, { from: moment(was.from), to: moment(was.to) });
  if (Math.min(was.from, was.to) < beginOfDay() + book.times[0] / 1e6 - 1000 && was.from > -Infinity) noteLive("The chosen moment has left the chart.");
  if (!whole && state.metric !== "peak") state.from = state.to;
  if (!data.chart && needsChart(state.metric)) state.metric = "use";
  state.process = was.process === "" ? -1 : processKeys().indexOf(was.process);
  if (was.process !== "" && state.process < 0) noteLive(was.name + " has left the books: all processes are shown.");
  if (!book.groups.includes(state.group)) state.group = "";
  state.gpu = typeof was.gpu === "number" ? was.gpu : gpuKeys().indexOf(was.gpu) < 0 ? -2 : gpuKeys().indexOf(was.gpu);
  state.entry = was.entry ? siteLike(was.entry) : -1;
  state.keeper = was.keeper && book.kept ? firstNamed(data.kept.keepers.node.length, holderName, was.keeper) : -1;
  [shownEntry, shownKeeper] = [state.entry, state.keeper]; // they are not new: the page does not scroll to them
  for (const { g, zoom, focus } of was.graphs) {
    const t = g === sites ? currentTree() : book.kept;
    if (!t) continue;
    g.zoom = g.instead = nodeAt(t, zoom);
    g.focus = focus ? nodeAt(t, focus) : -1;
  }
}

// siteLike returns the site with the names of one in other data, -1 without one.
function siteLike({ text, names }) {
  const name = names.at(-1);
  for (let e = 0; e < book.entries; e++) {
    if (entryText(e) === text && nodeNames(book.full, data.entries.node[e]).at(-1) === name) return e;
  }
  return -1;
}

// restoreHover has the box beside the pointer show the new figures.
function restoreHover(was) {
  for (const { g, hover } of was.graphs) {
    const t = hover && g.tree, node = t ? nodeAt(t, hover) : -1, tip = part(g, "flame-tip");
    if (!t || node === 0 && hover.length > 0) {
      if (hover) tip.hidden = true;
      continue;
    }
    g.hover = node;
    if (!tip.hidden) tip.replaceChildren(...flameTip(g, { node }));
  }
}

// rememberPlace returns what the reader looks at and where the keyboard is.
function rememberPlace() {
  const anchor = [...document.querySelectorAll("main > section:not([hidden])")].find((x) => x.getBoundingClientRect().bottom > 0);
  const focused = document.activeElement, box = focused && focused !== document.body ? focused.closest("[id]") : null;
  return { anchor, top: anchor?.getBoundingClientRect().top, focused, box, index: box ? [...box.querySelectorAll("button, a, input, summary")].indexOf(focused) : -1 };
}

function restorePlace({ anchor, top, focused, box, index }) {
  if (index >= 0 && !focused.isConnected) box.querySelectorAll("button, a, input, summary")[index]?.focus({ preventScroll: true });
  if (anchor && scrollY > 0) scrollBy({ top: anchor.getBoundingClientRect().top - top, behavior: "instant" });
}
