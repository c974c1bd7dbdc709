// SPDX-License-Identifier: Apache-2.0
// main.js: starts the page.

// show updates the page to the choice. One that the reader did not make is not noted.
function show(note = true) {
  showFilters();
  showOpening();
  showPurposes();
  drawChart();
  showSum();
  showKept();
  fillLegend(sites, ["Python, yours", "Python, libraries", "native, yours", "native, libraries", "no code"]);
  graphs.forEach(showGraph);
  graphs.forEach(showTable);
  showKeeper();
  showSelected();
  showParts();
  if (note) noteAddress();
}

function watchFilters() {
  byId("process").addEventListener("change", (event) => {
    const of = /^group(\d+)$/.exec(event.target.value);
    filter(of ? { process: -1, group: book.choices[of[1]] } : { process: Number(event.target.value), group: "" });
  });
  byId("gpu").addEventListener("change", (event) => filter({ gpu: Number(event.target.value) }));
  byId("hide").addEventListener("change", (event) => {
    Object.assign(sites, { zoom: 0, focus: -1, page: 0 });
    change({ hide: event.target.checked });
  });
  byId("fold").addEventListener("change", (event) => filter({ fold: event.target.checked }));
  byId("download").addEventListener("click", downloadProfile);
  byId("reset").addEventListener("click", reset);
  [sites, keepers].forEach(watchTable);
  watchPurposes();
  byId("unselect").addEventListener("click", () => change({ entry: -1 }));
  byId("unselect-keeper").addEventListener("click", () => change({ keeper: -1 }));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      reset();
    } else if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
      event.preventDefault();
      (document.activeElement.closest("#kept-section") ? byId("kept-search") : byId("search")).focus();
    }
  });
}

function reset() {
  resetState();
  change({});
  byId("spoken").textContent = "Everything is shown again";
}

// The theme follows the system until the reader chooses one. The choice is not stored, because all
// pages opened from files share one storage.
const themes = { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" };
function watchTheme() {
  let theme = "auto";
  const set = (name) => {
    theme = name;
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    byId("theme").textContent = themes[name];
    repaint();
  };
  byId("theme").addEventListener("click", () => set({ auto: "dark", dark: "light", light: "auto" }[theme]));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  let before = theme;
  addEventListener("beforeprint", () => {
    before = theme;
    set("light");
  });
  addEventListener("afterprint", () => set(before));
  set("auto");
}

// repaint draws the canvases again with new colors or widths.
function repaint() {
  colors.clear();
  if (!sites.tree) return;
  drawChart();
  graphs.forEach(drawFlame);
}

// fill shows everything that does not depend on the choice.
function fill() {
  fillHead();
  fillFindings();
  fillFilters();
  fillKept();
  fillSteps();
  fillNotes();
  fillEvents();
}

async function main() {
  watchTheme();
  data = await readData();
  if (data.live) sections = structuredClone(data); // the page changes its own
  openBook();
  openKept();
  resetState();
  fill();
  watchFilters();
  [sites, keepers].forEach(watchFlame);
  watchChart();
  watchAddress();
  readAddress();
  update();
  show();
  shownAddress = addressOf();
  if (state.view === "kept") byId("kept-section").scrollIntoView();
  const resized = new ResizeObserver(() => {
    if (graphs.some((g) => g.tree && part(g, "flame").clientWidth !== g.width)) repaint();
  });
  for (const g of [sites, keepers]) resized.observe(part(g, "flame"));
  later.forEach((start) => start());
  document.documentElement.dataset.ready = Math.round(performance.now());
}

main().catch((error) => {
  byId("failure").textContent = "This page cannot be shown: " + error.message;
  byId("failure").hidden = false;
});
