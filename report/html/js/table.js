// SPDX-License-Identifier: Apache-2.0
// table.js: the table of a graph's entries.

const pageRows = 25;

// rowsShown returns the entries with bytes that are not folded, in order; during a search, the
// matching ones. Where several make one row, it is the first of table.line(e).
function rowsShown(g) {
  const count = g.bytes.length, list = [];
  for (let e = 0; e < count; e++) {
    if (g.bytes[e] !== 0 && (g.searching ? found(g, e) : !g.table.folded?.(e))) list.push(e);
  }
  return sorted(g, g.table.lines ? g.table.lines(list) : list);
}

// sorted returns entries in the order that was chosen.
function sorted(g, list) {
  const count = g.bytes.length;
  const [, , of, number] = g.table.columns().find(([key]) => key === g.sort) || g.table.columns()[0], sign = g.down ? -1 : 1;
  if (number) {
    const value = new Float64Array(count);
    for (const e of list) value[e] = of(e);
    return list.sort((a, b) => sign * (value[a] - value[b]) || a - b);
  }
  const value = new Map(list.map((e) => [e, of(e)]));
  return list.sort((a, b) => {
    const x = value.get(a), y = value.get(b);
    return sign * (x < y ? -1 : x > y ? 1 : 0) || g.bytes[b] - g.bytes[a] || a - b;
  });
}

function watchTable(g) {
  byId(g.table.id + "-previous").addEventListener("click", () => look(g, { page: g.page - 1 }));
  byId(g.table.id + "-next").addEventListener("click", () => look(g, { page: g.page + 1 }));
}

function showTable(g) {
  const id = g.table.id, list = rowsShown(g);
  const pages = Math.max(1, Math.ceil(list.length / pageRows));
  g.page = Math.min(g.page, pages - 1);
  const first = g.page * pageRows, rows = list.slice(first, first + pageRows);
  byId(id + "-count").textContent = list.length === 0 ? "none" : `${countText(first + 1)}–${countText(first + rows.length)} of ${countText(list.length)}`;
  if (!g.searching && g.table.folded && folds(g.tree)) byId(id + "-count").textContent += `, and ${bytesText(g.tree.sum[g.tree.before])} ${beforeText()}`;
  byId(id + "-pages").hidden = pages < 2;
  byId(id + "-previous").disabled = g.page === 0;
  byId(id + "-next").disabled = g.page === pages - 1;
  const columns = g.table.columns();
  byId(id).querySelector("thead tr").replaceChildren(...columns.map(([key, name, , number]) => element("th", {
    scope: "col", class: (number ? "number " : "") + "c-" + key, "aria-sort": g.sort === key ? (g.down ? "descending" : "ascending") : null,
  }, element("button", { type: "button", onclick: () => sortBy(g, key, number) }, name))));
  byId(id).querySelector("tbody").replaceChildren(...rows.map((e) => rowOf(g, e, columns)));
}

function sortBy(g, key, number) {
  look(g, { sort: key, down: g.sort === key ? !g.down : number, page: 0 });
  requestAnimationFrame(() => { // the head was made anew: the keyboard stays where it was
    const i = g.table.columns().findIndex(([k]) => k === key);
    byId(g.table.id).querySelectorAll("thead button")[i]?.focus();
  });
}

function rowOf(g, e, columns) {
  const row = element("tr", { class: (g.table.line ? g.table.line(e) : [e]).includes(g.table.selected()) ? "selected" : null },
    ...columns.map(([key, , , number, cell]) => element("td", { class: (number ? "number " : "") + "c-" + key }, cell(e))));
  row.addEventListener("click", () => g.table.select(e));
  return row;
}

// fillFacts lists names and texts; those without a text are left out.
function fillFacts(list, facts) {
  list.replaceChildren(...facts.filter((f) => f[1]).map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text))));
}
