// SPDX-License-Identifier: Apache-2.0
// errors.js: out-of-memory errors of the session and of the archive, in a page that is served.

function fillErrors() {
  const list = data.live.errors, total = list.length + data.live.more;
  let box = byId("errors");
  if (!box) {
    box = element("details", { id: "errors", class: "alert", hidden: true }, element("summary", {}), element("ul", {}));
    byId("findings").before(box);
  }
  box.hidden = total === 0;
  if (total === 0) return;
  box.querySelector("summary").textContent = plural(total, "out-of-memory error") + (list.length ? `, the latest at ${dateText(list[0].wall)}` : "");
  const rows = list.map((x) => element("li", {}, errorButton(x), " ", element("b", {}, x.process), " " + x.text, x.where ? element("span", { class: "soft" }, " in " + x.where) : ""));
  if (data.live.more > 0) rows.push(element("li", { class: "soft" }, countText(data.live.more) + " earlier ones are not listed here"));
  box.querySelector("ul").replaceChildren(...rows);
}

// errorButton leads to the moment of an error: in the chart, or in the archive.
function errorButton(x) {
  const inChart = x.time >= 0 && data.chart && x.time >= book.times[0], inArchive = data.live.from > 0 && x.wall >= data.live.from;
  if (!inChart && !inArchive) return dateText(x.wall);
  return element("button", { type: "button", class: "link", onclick: () => {
    if (!inChart) goTo(x.wall);
    else setRange(nearest(x.time), nearest(x.time));
  } }, dateText(x.wall));
}
