// SPDX-License-Identifier: Apache-2.0
// main.js: starts the page.

// show updates the page to the choice.
function show() {
  showFilters();
  drawChart();
  showSum();
  showCrumbs();
  drawFlame();
  showBoxes();
  showSites();
  showSelected();
}

function watchFilters() {
  byId("process").addEventListener("change", (event) => change({ process: Number(event.target.value), page: 0 }));
  byId("gpu").addEventListener("change", (event) => change({ gpu: Number(event.target.value), page: 0 }));
  byId("search").addEventListener("input", (event) => change({ query: event.target.value, page: 0 }));
  byId("regex").addEventListener("click", () => change({ regex: !state.regex, page: 0 }));
  byId("hide").addEventListener("change", (event) => change({ hide: event.target.checked, zoom: 0, focus: -1, page: 0 }));
  byId("reset").addEventListener("click", reset);
  byId("previous").addEventListener("click", () => change({ page: state.page - 1 }));
  byId("next").addEventListener("click", () => change({ page: state.page + 1 }));
  byId("unselect").addEventListener("click", () => change({ entry: -1 }));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      reset();
    } else if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
      event.preventDefault();
      byId("search").focus();
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
  if (!view.tree) return;
  drawChart();
  drawFlame();
}

async function main() {
  watchTheme();
  data = await readData();
  openBook();
  resetState();
  fillHead();
  fillFindings();
  fillFilters();
  fillLegend();
  fillParts();
  fillNotes();
  watchFilters();
  watchFlame();
  if (data.chart) {
    byId("chart-section").hidden = false;
    fillEvents();
    watchChart();
  }
  update();
  show();
  new ResizeObserver(() => {
    if (byId("flame").clientWidth !== flame.width) repaint();
  }).observe(byId("flame"));
  document.documentElement.dataset.ready = Math.round(performance.now());
}

main().catch((error) => {
  byId("failure").textContent = "This page cannot be shown: " + error.message;
  byId("failure").hidden = false;
});
