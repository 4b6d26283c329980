// The cluster now, asked for every two seconds from the service that served this page.
"use strict";
const at = (id) => document.getElementById(id);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const make = (tag, text, kind) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  return element;
};
const number = (x, digits = 0) =>
  x.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: 0 });
const lasting = (s) => {
  if (s === null || s === undefined || !Number.isFinite(s)) return "?";
  if (s < 60) return `${number(Math.max(s, 0))} s`;
  return s < 3600 ? `${number(s / 60, 1)} min` : `${number(s / 3600, 1)} h`;
};
const units = { gpu: "GPU", cpu: "CPU", mem: "GiB" };
const unit = (kind, n) => (units[kind] || kind) + (n !== 1 && units[kind]?.endsWith("PU") ? "s" : "");
const amounts = (of) => Object.entries(of || {}).filter(([, n]) => n)
  .map(([kind, n]) => `${number(n, 2)} ${unit(kind, n)}`).join(" + ");
const natural = new Intl.Collator("en", { numeric: true }).compare;

let token = sessionStorage.getItem("token") || "";
let shown = { nodes: [], jobs: [], timeline: null, rates: null };
let heard = null;

async function ask(path) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(`api/${path}`, { headers, cache: "no-store" });
  if (answer.status === 401) at("login").hidden = false;
  if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
  return answer.json();
}

// ---------------------------------------------------------------- words and tables

function tellHealth(health) {
  const verb = health.mode === "act" ? "acts on" : "watches";
  at("mode").textContent = health.engine
    ? `${verb} ${health.engine} with ${health.scheduler}${health.paused ? ", paused" : ""}` : "…";
  const troubles = Object.entries(health.troubles || {}).map(([what, t]) =>
    make("p", `${what} has been failing for ${lasting(health.now - t.since)}: ${t.what}`));
  if (!health.well && !troubles.length)
    troubles.push(make("p", health.age === null ? "The service has said nothing since its machine was started."
      : `The service has said nothing for ${lasting(health.age)}.`));
  at("troubles").replaceChildren(...troubles);
}

function tellFigures(health, nodes) {
  const kinds = {};
  for (const node of nodes) for (const [kind, n] of Object.entries(node.devices)) {
    const sum = (kinds[kind] ||= { all: 0, free: 0 });
    if (node.up) { sum.all += n; sum.free += node.free[kind] || 0; }
  }
  const up = nodes.filter((node) => node.up).length;
  const figures = [["Running", number(health.running + health.placed), ""],
    ["Waiting", number(health.waiting), ""], ["Nodes up", number(up), ` of ${number(nodes.length)}`]];
  const first = ["gpu", "cpu"].filter((kind) => kinds[kind]?.all);
  for (const kind of first.length ? first : Object.keys(kinds).slice(0, 2)) {
    const { all, free } = kinds[kind];
    figures.push([`${unit(kind)} in use`, `${number(all ? 100 * (1 - free / all) : 0)} %`, ` of ${number(all)}`]);
  }
  figures.push(["last decisions took", number(health.round_ms, 1), " ms"]);
  at("figures").replaceChildren(...figures.map(([what, value, more]) => {
    const box = make("div"), dd = make("dd", value);
    if (more) dd.append(make("small", more));
    box.append(make("dt", what), dd);
    return box;
  }));
}

function tellQueue(jobs, unreadable, now) {
  const rows = jobs.filter((job) => job.phase === "waiting");
  at("waiting").tBodies[0].replaceChildren(...rows.slice(0, 100).map((job) => {
    const row = make("tr");
    const why = job.would
      ? `would start now on ${job.would.map(([node]) => node).join(", ")}` : job.why || "";
    const room = job.where && job.where.length && !job.would ? `; there is room for a part on ${job.where.slice(0, 4).join(", ")}` : "";
    const frees = job.frees && job.frees.length && !job.would ? `; waits for the end of ${job.frees.length > 1 ? "jobs" : "job"} ${job.frees.slice(0, 4).join(", ")}` : "";
    const [p50, p90] = [job.p50, job.p90].map((time) => lasting(Math.max(time - now, 0)));
    row.append(make("td", job.job, "id"), make("td", job.user),
      make("td", (job.groups || [job]).map((of) => `${of.tasks} × ${amounts(of.demand)}`).join(" and ")), make("td", lasting(now - job.submitted), "nowrap"),
      make("td", why + room + frees, "why"),
      make("td", job.p50 ? `${p50}, 9 in 10 by ${p90}` : "no forecast yet", "nowrap"));
    return row;
  }));
  const held = jobs.filter((job) => job.phase === "held");
  const odd = unreadable.filter((row) => row.kind !== "job");  // these are held
  at("held").replaceChildren(
    ...held.slice(0, 50).map((job) => make("li", `${job.job} is held: ${job.why}`)),
    ...odd.slice(0, 50).map((row) => make("li", `${row.kind} ${row.name} is ${row.why}`)));
  at("waiting").hidden = !rows.length;
  document.querySelector("#queue .none").hidden = rows.length > 0;
}

function tellNodes(nodes) {
  at("nodes").replaceChildren(...nodes.slice(0, 500).map((node) => {
    const item = make("li"), kind = node.devices.gpu ? "gpu" : Object.keys(node.devices)[0];
    item.append(make("b", node.name));
    if (!node.up) item.append(make("span", ` down: ${node.reason}`, "down"));
    else {
      const all = node.devices[kind] || 0, used = all - (node.free[kind] || 0);
      const bar = make("div", undefined, "bar"), fill = make("i");
      fill.style.width = `${all ? (100 * used) / all : 0}%`;
      bar.append(fill);
      item.append(make("span", ` ${number(used, 1)} of ${number(all, 1)} ${unit(kind, all)}`), bar);
    }
    if (node.factor) item.append(make("span",
      `${node.factor.toFixed(2)} × label (${node.low.toFixed(2)} to ${node.high.toFixed(2)})`));
    return item;
  }));
}

function tellAccount(account, slow) {
  at("saved").hidden = !account.told;
  at("account").textContent = account.told || "";
  at("slow").replaceChildren(...slow.map((s) => make("li",
    `${s.node} is ${number(100 * s.slower)} % slower than its label says (${number(100 * s.low)} to ${number(100 * s.high)})`)));
}

// ---------------------------------------------------------------- canvases

function sheet(canvas, height) {
  const scale = devicePixelRatio || 1, wide = canvas.clientWidth;
  canvas.style.height = `${height}px`;
  canvas.width = wide * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  return [pen, wide];
}
const gutter = (pen, names, wide) =>
  Math.min(wide * 0.3, 12 + Math.max(20, ...names.map((name) => pen.measureText(name).width)));
function fitted(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  while (text && pen.measureText(`${text}…`).width > room) text = text.slice(0, -1);
  return text ? `${text}…` : "";
}
const colours = new Map();
const colour = (type) => {
  if (!colours.has(type)) colours.set(type, `--c${colours.size % 8}`);
  return style(colours.get(type));
};

let chosen = null;
function drawGangs() {
  const data = shown.timeline;
  if (!data) return;
  data.since = Math.min(Math.max(data.since, ...data.pieces.map((p) => p.began).sort((a, b) => a - b).slice(0, 1)), data.now - 30);
  const rows = shown.nodes.map((node) => node.name);
  const tall = rows.length > 60 ? 6 : rows.length > 24 ? 12 : 20, foot = 20;
  const [pen, wide] = sheet(at("gangs"), Math.max(rows.length, 1) * tall + foot);
  const names = tall > 6, left = names ? gutter(pen, rows, wide) : 0;
  const x = (time) => left + ((time - data.since) / (data.now - data.since)) * (wide - left - 1);
  const line = new Map(rows.map((name, i) => [name, i]));
  pen.fillStyle = style("--muted");
  if (names) rows.forEach((name, i) => pen.fillText(fitted(pen, name, left - 8), 0, Math.max((i + 0.5) * tall, 6)));
  pen.fillStyle = style("--rule");
  rows.forEach((_, i) => pen.fillRect(left, (i + 1) * tall - 0.5, wide - left, 0.5));
  const levels = packed(data.pieces);
  data.pieces.forEach((piece, i) => {
    const row = line.get(piece.node);
    if (row === undefined) return;
    const [level, of] = levels[i];
    const a = Math.max(x(piece.began), left), b = x(piece.ended ?? data.now);
    const inner = tall - 2, top = row * tall + 1 + (level * inner) / of, high = inner / of;
    pen.fillStyle = colour(piece.job_type);
    pen.fillRect(a, top, Math.max(b - a, 1), Math.max(high - (high > 4 ? 1 : 0), 1));
    if (piece.job === chosen) {
      pen.strokeStyle = style("--ink");
      pen.lineWidth = 2;
      pen.strokeRect(a + 1, top + 1, Math.max(b - a - 2, 1), Math.max(high - 3, 1));
    }
  });
  pen.fillStyle = style("--muted");
  const span = data.now - data.since, marks = wide < 500 ? 3 : 6;
  const rounds = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200];
  const every = rounds.find((s) => span / s <= marks) ?? 86400 * Math.ceil(span / marks / 86400);
  for (let before = 0; before <= span; before += every) {
    const text = before ? `−${lasting(before)}` : "now", w = pen.measureText(text).width;
    const from = x(data.now - before) - w / 2;
    if (from >= left) pen.fillText(text, Math.min(from, wide - w), rows.length * tall + foot / 2 + 2);
  }
  at("types").replaceChildren(...[...new Set(data.pieces.map((p) => p.job_type))].sort(natural).map((type) => {
    const item = make("li"), swatch = make("i");
    swatch.style.background = colour(type);
    item.append(swatch, type);
    return item;
  }));
}
// Pieces that overlap on a node lie beside each other: level and how many levels the node has.
function packed(pieces) {
  const order = pieces.map((_, i) => i).sort((a, b) => pieces[a].began - pieces[b].began);
  const ends = new Map(), level = [], most = new Map();
  for (const i of order) {
    const { node, began, ended } = pieces[i];
    const lanes = ends.get(node) || ends.set(node, []).get(node);
    let lane = lanes.findIndex((end) => end <= began + 1e-3);
    if (lane < 0) lane = lanes.length;
    lanes[lane] = ended ?? Infinity;
    level[i] = lane;
    most.set(node, lanes.length);
  }
  return pieces.map((piece, i) => [level[i], most.get(piece.node)]);
}
function sayGang() {
  const pieces = (shown.timeline?.pieces || []).filter((p) => p.job === chosen);
  if (!pieces.length) { at("gangs-said").textContent = ""; return; }
  const [one] = pieces, end = one.ended ?? shown.timeline.now;
  const where = pieces.map((p) => `${p.node} (${p.tasks})`).join(", ");
  at("gangs-said").textContent =
    `${one.job}, ${one.job_type} of ${one.user}: ${one.outcome} on ${where} for ${lasting(end - one.began)}; placed by ${one.by}`;
}
function step(by) {
  const begins = new Map();
  for (const p of shown.timeline?.pieces || []) begins.set(p.job, Math.min(p.began, begins.get(p.job) ?? Infinity));
  const jobs = [...begins.keys()].sort((a, b) => begins.get(a) - begins.get(b) || natural(a, b));
  if (!jobs.length) return;
  const place = jobs.indexOf(chosen);
  chosen = jobs[place < 0 ? jobs.length - 1 : Math.min(Math.max(place + by, 0), jobs.length - 1)];
  drawGangs();
  sayGang();
}
at("gangs").addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -1e9, End: 1e9 }[event.key];
  if (by === undefined) return;
  event.preventDefault();
  step(by);
});
at("gangs").addEventListener("click", (event) => {
  const data = shown.timeline, box = at("gangs").getBoundingClientRect();
  if (!data) return;
  const rows = shown.nodes.length, tall = (box.height - 20) / Math.max(rows, 1);
  const node = shown.nodes[Math.floor((event.clientY - box.top) / tall)]?.name;
  const pen = at("gangs").getContext("2d");
  const left = tall > 6 ? gutter(pen, shown.nodes.map((n) => n.name), box.width) : 0;
  const time = data.since + ((event.clientX - box.left - left) / (box.width - left)) * (data.now - data.since);
  const hit = data.pieces.findLast((p) => p.node === node && p.began <= time && time <= (p.ended ?? data.now));
  chosen = hit?.job ?? null;
  drawGangs();
  sayGang();
});

let cell = [0, 0];
function drawRates() {
  const { nodes, types } = shown.rates || { nodes: [], types: [] };
  if (!types.length) {
    const [pen, wide] = sheet(at("rates"), 30);
    pen.fillStyle = style("--muted");
    pen.fillText(fitted(pen, "Nothing has been measured, or this scheduler does not learn.", wide), 0, 15);
    return;
  }
  const names = types.map((type) => type.job_type), tall = 22, foot = 18;
  const [pen, wide] = sheet(at("rates"), types.length * tall + foot);
  const left = gutter(pen, names, wide), each = (wide - left) / nodes.length;
  const fast = style("--fast"), slow = style("--slow");
  types.forEach((type, row) => {
    pen.fillStyle = style("--muted");
    pen.fillText(fitted(pen, type.job_type, left - 8), 0, (row + 0.5) * tall);
    const sorted = type.rate.filter((r) => r > 0).sort((a, b) => a - b);
    const middle = sorted[Math.floor(sorted.length / 2)] || 1;
    type.rate.forEach((rate, i) => {
      if (!(rate > 0)) return;
      const log = Math.log(rate / middle), width = Math.log(type.high[i] / type.low[i]) / 2;
      const strength = Math.min(Math.abs(log) / Math.log(2.5), 1) * 0.9 + 0.08;
      const sure = Math.max(0.25, 1 - width / 1.5);
      pen.fillStyle = `rgb(${log < 0 ? slow : fast} / ${strength * sure})`;
      pen.fillRect(left + i * each, row * tall + 1, Math.max(each - (each > 4 ? 1 : 0), 0.5), tall - 2);
    });
  });
  const [row, column] = cell;
  if (document.activeElement === at("rates")) {
    pen.strokeStyle = style("--ink");
    pen.lineWidth = 2;
    pen.strokeRect(left + column * each, row * tall + 1, Math.max(each - 1, 2), tall - 2);
  }
  pen.fillStyle = style("--muted");
  const every = Math.ceil((Math.max(...nodes.map((n) => pen.measureText(n).width)) + 10) / each);
  nodes.forEach((name, i) => { if (i % every === 0) pen.fillText(name, left + i * each + 2, types.length * tall + foot / 2); });
}
function sayRate() {
  const { nodes, types } = shown.rates || { nodes: [], types: [] }, type = types[cell[0]], i = cell[1];
  if (!type) return;
  at("rates-said").textContent = `${type.job_type} on ${nodes[i]}: ${number(type.rate[i], 2)} of a node of rate 1, ` +
    `95 % between ${number(type.low[i], 2)} and ${number(type.high[i], 2)}`;
}
function moveTo(row, column) {
  const { nodes, types } = shown.rates || { nodes: [], types: [] };
  if (!types.length) return;
  cell = [Math.min(Math.max(row, 0), types.length - 1), Math.min(Math.max(column, 0), nodes.length - 1)];
  drawRates();
  sayRate();
}
at("rates").addEventListener("keydown", (event) => {
  const by = { ArrowRight: [0, 1], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowUp: [-1, 0],
    Home: [0, -1e9], End: [0, 1e9] }[event.key];
  if (!by) return;
  event.preventDefault();
  moveTo(cell[0] + by[0], cell[1] + by[1]);
});
for (const kind of ["focus", "blur"]) at("rates").addEventListener(kind, drawRates);
at("rates").addEventListener("click", (event) => {
  const { nodes, types } = shown.rates || { nodes: [], types: [] }, box = at("rates").getBoundingClientRect();
  if (!types.length) return;
  const left = gutter(at("rates").getContext("2d"), types.map((t) => t.job_type), box.width);
  moveTo(Math.floor((event.clientY - box.top) / 22),
    Math.floor(((event.clientX - box.left - left) / (box.width - left)) * nodes.length));
});

// ---------------------------------------------------------------- once every two seconds

async function look() {
  try {
    const span = document.querySelector('input[name="span"]:checked').value;
    const [health, nodes, jobs, timeline, rates, account, unreadable] = await Promise.all(
      ["health", "nodes", "jobs?limit=400", `timeline?seconds=${span}`, "rates", "account", "unreadable"].map(ask));
    nodes.sort((a, b) => natural(a.name, b.name));
    shown = { nodes, jobs, timeline, rates };
    at("login").hidden = true;
    heard = Date.now();
    tellHealth(health);
    tellFigures(health, nodes);
    tellQueue(jobs, unreadable, health.now);
    tellNodes(nodes);
    tellAccount(account, rates.slow);
    drawGangs();
    drawRates();
    sayGang();
    at("fresh").textContent = `as of ${new Date(heard).toLocaleTimeString("en-GB")}`;
    at("fresh").className = "";
  } catch (error) {
    const since = heard === null ? "" : `, last heard of at ${new Date(heard).toLocaleTimeString("en-GB")}`;
    at("fresh").textContent = `no answer${since} (${error.message})`;
    at("fresh").className = "old";
  }
}
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value;
  sessionStorage.setItem("token", token);
  look();
});
at("span").addEventListener("change", look);
addEventListener("resize", () => { drawGangs(); drawRates(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawGangs(); drawRates(); });
(async function always() {
  await look();
  setTimeout(always, document.hidden ? 10000 : 2000);
})();
