// SPDX-License-Identifier: Apache-2.0
// follow.js: follows the session by the server's events.

const silence = 45_000; // ms without any event, after which the connection is dead
const retryAfter = 5000; // ms, where the server refuses

let source = null, waitingData = null, heardAt = 0, retryTimer = 0;

function follow() {
  leaveLive();
  setLive("live", live.note);
  source = new EventSource("events?after=" + encodeURIComponent(live.id));
  heardAt = performance.now();
  source.addEventListener("open", heard);
  source.addEventListener("still", heard);
  source.addEventListener("age", (event) => Object.assign(live, { age: Number(event.data), heard: performance.now() }));
  source.addEventListener("data", (event) => {
    heard();
    const x = JSON.parse(event.data);
    waitingData = waitingData ? { after: x.after === "" ? "" : waitingData.after, data: x.after === "" ? x.data : { ...waitingData.data, ...x.data } } : x;
    takeData();
  });
  source.addEventListener("error", () => {
    setLive("lost");
    if (source && source.readyState === EventSource.CLOSED) retryTimer = setTimeout(follow, retryAfter); // it refused
  });
}

function heard() {
  heardAt = performance.now();
  if (live.state === "lost") setLive("live");
}

// leaveLive ends following the session.
function leaveLive() {
  clearTimeout(retryTimer);
  if (source) source.close();
  source = waitingData = null;
}

// takeData shows what came, unless the reader is in the middle of something.
function takeData() {
  if (!waitingData || busy()) return;
  const { after, data: next } = waitingData;
  waitingData = null;
  if (!receive(after, next)) {
    live.id = "";
    follow();
  }
}

// busy reports whether a range is dragged or text is selected.
const busy = () => held !== null || !document.getSelection().isCollapsed;

function watchServer() {
  Object.assign(live, { id: sections.id, age: sections.age, heard: performance.now() });
  makeBar();
  fillErrors();
  fillPast();
  watchPast();
  if (data.live.past) setLive("past");
  else follow();
  setInterval(() => {
    takeData();
    showLive();
    if (source && performance.now() - heardAt > silence) follow();
  }, 1000);
  document.addEventListener("visibilitychange", () => { // nobody sees a page in the background
    if (document.hidden && source) {
      leaveLive();
      live.state = "hidden";
    } else if (!document.hidden && live.state === "hidden") follow();
  });
}

later.push(watchServer);
