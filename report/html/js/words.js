// SPDX-License-Identifier: Apache-2.0
// words.js: figures as people read them, and elements of the page.

const byId = (id) => document.getElementById(id);

// bytesText returns three digits and IEC units, as the reports in the terminal: "1.95 GiB".
function bytesText(n) {
  if (n < 0) return "−" + bytesText(-n);
  if (n < 1024) return Math.round(n) + " B";
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let i = -1;
  do { n /= 1024; i++; } while (n >= 1024 && i < units.length - 1);
  return n.toFixed(n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2) + " " + units[i];
}

const signedText = (n) => (n > 0 ? "+" : "") + bytesText(n);

// spanText returns a time in ns since the begin: "850ms", "8.5s", "2m12s", "3h05m".
function spanText(ns) {
  const s = ns / 1e9;
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  if (s < 1) return Math.round(ns / 1e6) + "ms";
  if (s < 60) return (s < 10 ? (Math.floor(s * 10) / 10).toFixed(1) : Math.floor(s)) + "s";
  if (s < 3600) return Math.floor(s / 60) + "m" + two(s % 60) + "s";
  if (s < 86400) return Math.floor(s / 3600) + "h" + two((s % 3600) / 60) + "m";
  return Math.floor(s / 86400) + "d" + Math.floor((s % 86400) / 3600) + "h";
}

// A page that is served has times of day, others have times since the begin.
const beginOfDay = () => data.wall - data.end / 1e6; // ms since 1970
const clockText = (ms) => new Date(ms).toLocaleTimeString("en-GB");
const dateText = (ms) => new Date(ms).toLocaleString("sv-SE"); // 2026-11-22 03:12:00
const whenText = (ns) => (data.live ? clockText(beginOfDay() + ns / 1e6) : spanText(ns));
const afterText = (ns) => (data.live ? "at " : "after ") + whenText(ns);
const endText = () => (!data.live ? "at the end" : data.live.past ? "then" : "now");

function shareText(part, whole) {
  if (!(whole > 0) || part < 0) return "–";
  const share = 100 * part / whole;
  if (share > 0 && share < 0.005) return "<0.01 %";
  return (share >= 99.95 ? "100" : share >= 10 ? share.toFixed(1) : share.toFixed(2)) + " %";
}

const countText = (n) => n.toLocaleString("en-US");
const plural = (n, noun) => countText(n) + " " + noun + (n === 1 ? "" : "s");

// element makes an element; texts become text nodes, so no name can become markup.
function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((c) => c != null));
  return node;
}

// drawing is element for SVG.
function drawing(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// sharp fits a canvas to its size and the screen's pixels.
function sharp(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const w = Math.max(1, Math.round(width * scale)), h = Math.max(1, Math.round(height * scale));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  return pen;
}

// color returns a color of page.css for a canvas, which cannot use CSS variables.
const colors = new Map();
function color(name) {
  let value = colors.get(name);
  if (!value) {
    const probe = byId("title");
    const before = probe.style.color;
    probe.style.color = `var(--${name})`;
    value = getComputedStyle(probe).color;
    probe.style.color = before;
    colors.set(name, value);
  }
  return value;
}
