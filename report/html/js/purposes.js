// SPDX-License-Identifier: Apache-2.0
// purposes.js: what the memory of each process and GPU is for, as a bar that opens a table.

const fewPurposes = 3; // bars that are shown at first
const openPurposes = new Set(); // whose table is open
const mostKeys = 6; // purposes that a bar names

// percentText returns "42 %", "<1 %", as the reports in the terminal; "" of nothing.
function percentText(part, all) {
  const percent = 100 * part / all;
  if (!(all > 0) || percent > -1 && part <= 0) return "";
  return part > 0 && percent < 1 ? "<1 %" : Math.round(percent) + " %";
}

// showPurposes shows the bars of the chosen processes and GPUs. Rows add up to NVML's figure.
let allPurposes = false;
function showPurposes() {
  const list = data.parts.purposes.filter((p) => processChosen(p.process) && state.gpu !== -1 && (state.gpu < 0 || p.gpu === state.gpu));
  const shown = allPurposes ? list : list.slice(0, fewPurposes), more = byId("purposes-more");
  byId("purpose-section").hidden = list.length === 0;
  const moment = state.metric !== "alloc" && state.to !== book.moments - 1;
  byId("purpose-when").textContent = !list.some((p) => p.time < 0) ? "" : endText() + (moment ? ", not at the moment chosen below" : "");
  more.hidden = list.length <= fewPurposes;
  more.textContent = allPurposes ? "Show the largest" : `Show all ${countText(list.length)}`;
  more.setAttribute("aria-expanded", String(allPurposes));
  const text = JSON.stringify([shown, !data.chart]);
  if (byId("purposes").dataset.filled === hashed(text)) return; // what the keyboard is on stays
  byId("purposes").dataset.filled = hashed(text);
  byId("purposes").replaceChildren(...shown.map(purposeRow));
}

const purposeKey = (p) => p.title + " " + p.time;

function purposeRow(p) {
  const row = element("details", { class: "purpose", open: openPurposes.has(purposeKey(p)) }, purposeSummary(p), purposeTable(p));
  row.addEventListener("toggle", () => openPurposes[row.open ? "add" : "delete"](purposeKey(p)));
  row.querySelector("summary").addEventListener("click", (event) => {
    const kind = event.target.closest(".stack-bar span, .keys span[data-row]")?.dataset.row;
    for (const x of row.querySelectorAll("tr")) x.classList.toggle("chosen-row", x.dataset.row === kind);
    if (kind === undefined) return;
    event.preventDefault(); // a part of the bar opens the table, and never closes it
    row.open = true;
  });
  return row;
}

function purposeSummary(p) {
  const bar = element("span", { class: "stack-bar", "aria-hidden": "true" }), sum = p.rows.reduce((n, r) => n + Math.max(r.bytes, 0), 0);
  const text = (r) => `${r.name} ${bytesText(r.bytes)}`;
  p.rows.forEach((r, i) => {
    if (r.bytes <= 0) return;
    const piece = element("span", { class: "for-" + r.kind, title: text(r) + ", " + percentText(r.bytes, p.bytes), "data-row": i });
    piece.style.width = 100 * r.bytes / sum + "%";
    bar.append(piece);
  });
  const keys = element("span", { class: "keys" }, ...p.rows.slice(0, mostKeys).map((r, i) => element("span", { "data-row": i }, element("i", { class: "swatch for-" + r.kind }), text(r))),
    p.rows.length > mostKeys ? element("span", {}, `and ${p.rows.length - mostKeys} more`) : null);
  const when = p.time < 0 ? "" : afterText(p.time) + ", its peak";
  return element("summary", {}, element("span", { class: "who" }, element("span", { class: "title", title: p.title }, p.title), element("b", {}, bytesText(p.bytes)), when ? element("span", { class: "soft" }, " " + when) : null), bar, keys);
}

function purposeTable(p) {
  const line = (name, bytes, all, known, row) => element("tr", { "data-row": row }, name, element("td", { class: "number" }, bytesText(bytes)),
    element("td", { class: "number soft" }, percentText(bytes, all)), element("td", { class: "soft" }, known ? "by " + known : ""));
  const rows = p.rows.flatMap((r, i) => [
    line(element("th", { scope: "row" }, element("i", { class: "swatch for-" + r.kind }), r.name), r.bytes, p.bytes, r.known, i),
    ...(r.pieces || []).map((x) => line(element("td", { class: "soft piece" }, x.name), x.bytes, 0, "", i))]);
  const moment = p.time < 0 || !data.chart ? null : element("p", { class: "soft" }, "At the peak of the process. ",
    element("button", { type: "button", class: "link", onclick: () => setRange(nearest(p.time), nearest(p.time)) }, "Choose " + whenText(p.time)));
  return element("div", { class: "more" }, element("div", { class: "scroll" }, element("table", {}, element("tbody", {}, ...rows))), moment, ...p.notes.map((text) => element("p", { class: "soft" }, text)));
}

function watchPurposes() {
  byId("purposes-more").addEventListener("click", () => {
    allPurposes = !allPurposes;
    showPurposes();
  });
}
