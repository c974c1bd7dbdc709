// SPDX-License-Identifier: Apache-2.0
// live.js: what the page shows (now, or a moment of the archive), how old it is, and the switch.

const live = {
  id: "", // of the data that is shown
  state: "", // live, paused, lost, past
  note: "", noted: 0, // what went wrong, and when
  heard: 0, // when the data came, ms of performance.now()
  age: 0, // of the data when it came, ms
};

const liveWords = { live: "Live", paused: "Paused", lost: "Connection lost, retrying", past: "Archive", hidden: "Live" };

function makeBar() {
  const range = element("input", { id: "past-range", type: "range", step: 1000, "aria-label": "Moment of the archive" });
  const at = element("input", { id: "past-at", type: "datetime-local", step: 1, "aria-label": "Moment of the archive, in this browser's time zone" });
  const bar = element("div", { id: "live", role: "region", "aria-label": "Time" },
    element("span", { id: "live-state", role: "status" }), element("span", { id: "live-age", class: "soft" }),
    element("button", { id: "pause", type: "button", onclick: pauseOrGoOn }, "Pause"),
    element("span", { id: "past" }, element("span", { id: "past-from", class: "soft" }), range, at),
    element("span", { id: "live-note", class: "alarm-text", role: "alert" }));
  byId("filters").before(bar);
  byId("at-all").textContent = "Whole chart";
  range.addEventListener("input", () => { byId("past-from").textContent = dateText(Number(range.value)); });
  range.addEventListener("change", () => goTo(Number(range.value)));
  at.addEventListener("change", () => { if (at.value) goTo(new Date(at.value).getTime()); });
}

function setLive(name, note = "") {
  live.state = name;
  noteLive(note);
}

// noteLive shows a sentence for some time.
const noteTime = 20_000; // ms
function noteLive(note) {
  Object.assign(live, { note, noted: performance.now() });
  showLive();
}

// showLive shows the state of the page. It replaces only texts that differ: a screen reader reads
// them out.
function showLive() {
  const words = (id, text) => { if (byId(id).textContent !== text) byId(id).textContent = text; };
  if (performance.now() - live.noted > noteTime) live.note = "";
  byId("live").dataset.state = live.state;
  words("live-state", liveWords[live.state]);
  words("live-note", live.note);
  words("live-age", ageText());
  words("pause", live.state === "past" ? "Back to live" : live.state === "paused" ? "Go on" : "Pause");
  byId("past").hidden = !data.live.from;
}

// ageText returns "at 14:05:12" and, of data that should have been replaced, its age.
function ageText() {
  if (live.state === "past") return "at " + dateText(data.wall);
  const age = live.age + performance.now() - live.heard;
  return "at " + clockText(data.wall) + (age >= 3000 || live.state !== "live" ? `, ${spanText(age * 1e6)} ago` : "");
}

// fillPast fits the controls of the archive to it. A control that is used stays as it is.
function fillPast() {
  byId("at-end").textContent = data.live.past ? "End" : "Now";
  if (!data.live.from) return;
  const range = byId("past-range"), at = byId("past-at");
  if (document.activeElement !== range) {
    range.min = data.live.from;
    range.max = Math.max(data.live.to, data.live.from + 1000);
    range.value = data.live.past ? data.wall : range.max;
  }
  if (document.activeElement !== at) at.value = data.live.past ? dateText(data.wall).replace(" ", "T") : "";
  byId("past-from").textContent = data.live.past ? "" : "Archive since " + dateText(data.live.from);
}

// goTo shows a moment of the archive, and returns false if there is none.
async function goTo(wall, note = true) {
  const text = new Date(wall).toISOString();
  if (!await load("data?at=" + encodeURIComponent(text))) return;
  leaveLive();
  setLive("past");
  if (note) history.pushState(null, "", "?at=" + encodeURIComponent(text) + "#" + addressOf());
}

async function goLive(note = true) {
  if (!await load("data")) return;
  if (note) history.pushState(null, "", location.pathname + "#" + addressOf());
  follow();
}

// load replaces the data by that of an address.
async function load(address) {
  try {
    const answer = await fetch(address);
    if (!answer.ok) throw new Error((await answer.text()).trim().slice(0, 300));
    receive("", await answer.json());
    return true;
  } catch (error) {
    setLive(live.state, error.message);
    return false;
  }
}

function pauseOrGoOn() {
  if (live.state === "past") goLive();
  else if (live.state === "paused") follow();
  else {
    leaveLive();
    setLive("paused");
  }
}

// watchPast follows the browser's back and forward between moments of the archive and now.
function watchPast() {
  let shown = location.search;
  addEventListener("popstate", () => {
    const at = Date.parse(new URLSearchParams(location.search).get("at") || "");
    if (location.search === shown && (live.state === "past") === !Number.isNaN(at)) return;
    shown = location.search;
    if (Number.isNaN(at)) goLive(false);
    else goTo(at, false);
  });
}
