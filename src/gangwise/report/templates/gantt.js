// Nodes over time on a canvas: rectangles of jobs, or shares held in bins; zoomed and moved by
// wheel, drag, buttons and keys.
{
  const box = document.getElementById("gantt");
  const [canvas, said, choice, search] =
    ["canvas", "output", "select", "input"].map((tag) => box.querySelector(tag));
  let lit = null; // the job that is pointed at or searched: others are pale
  const kinds = { row: Uint16Array, offset: Uint16Array, height: Uint16Array, begin: Float32Array,
    end: Float32Array, job: Uint32Array, user: Uint32Array, share: Uint8Array };
  const unpacked = (text, Kind) =>
    new Kind(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
  for (const each of chart.schedulers)
    for (const [name, Kind] of Object.entries(kinds))
      if (typeof each[name] === "string") each[name] = unpacked(each[name], Kind);

  const all = Math.max(chart.seconds, 1);
  let [from, to] = [0, all];
  let [wide, high, left] = [0, 0, 0];
  const foot = 22;
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const shown = () => chart.schedulers[Math.max(choice.selectedIndex, 0)];
  const line = () => (high - foot) / shown().rows.length;
  const x = (second) => left + ((second - from) / (to - from)) * (wide - left);
  const second = (pixel) => from + ((pixel - left) / (wide - left)) * (to - from);
  const two = (n) => (n < 10 ? "0" : "") + n;
  const clock = (s) => {
    const days = Math.floor(s / 86400), rest = s - 86400 * days;
    const time = `${two(Math.floor(rest / 3600))}:${two(Math.floor((rest % 3600) / 60))}`;
    return all > 86400 ? `day ${days + 1}, ${time}` : `${time}:${two(Math.floor(rest % 60))}`;
  };

  function draw() {
    const data = shown(), pen = canvas.getContext("2d"), scale = devicePixelRatio || 1;
    wide = canvas.clientWidth;
    const names = data.rows.length <= 80;
    high = foot + Math.max(data.rows.length * (names ? 12 : 3), 120);
    canvas.style.height = `${high}px`;
    canvas.width = wide * scale;
    canvas.height = high * scale;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, wide, high);
    pen.font = "10px system-ui, sans-serif";
    pen.textBaseline = "middle";
    left = Math.min(110, 8 + Math.max(...data.rows.map((n) => pen.measureText(n).width)));
    const tall = line();
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, wide - left, high);
    pen.clip();
    if (chart.exact) {
      const colours = [...Array(9).keys()].map((i) => style(`--c${i}`)).concat(style("--muted"));
      const gap = tall > 8 ? 1 : 0;
      for (let i = 0; i < data.count; i++) {
        if (data.end[i] < from || data.begin[i] > to) continue;
        const a = x(data.begin[i]), b = x(data.end[i]);
        const top = data.row[i] * tall + (data.offset[i] / 65535) * (tall - gap);
        pen.fillStyle = colours[chart.hues[data.user[i]]];
        pen.globalAlpha = lit === null || data.job[i] === lit ? 1 : 0.18;
        const h = Math.max((data.height[i] / 65535) * (tall - gap) - (tall > 40 ? 0.5 : 0), 0.5);
        pen.fillRect(a, top, Math.max(b - a - (b - a > 3 ? 0.5 : 0), 0.5), h);
      }
    } else {
      pen.fillStyle = style("--c0");
      const width = all / data.bins;
      const first = Math.max(Math.floor(from / width), 0);
      const last = Math.min(Math.ceil(to / width), data.bins);
      const step = Math.max(1, Math.floor((last - first) / (wide - left)));
      for (let row = 0; row < data.rows.length; row++) {
        for (let bin = first; bin < last; bin += step) {
          let sum = 0, n = 0;
          for (let k = bin; k < Math.min(bin + step, last); k++, n++)
            sum += data.share[row * data.bins + k];
          if (!sum) continue;
          pen.globalAlpha = sum / n / 255;
          const a = x(bin * width);
          pen.fillRect(a, row * tall, x((bin + step) * width) - a + 0.3, Math.max(tall - (tall > 8), 1));
        }
      }
      pen.globalAlpha = 1;
    }
    pen.restore();
    pen.fillStyle = style("--muted");
    const every = Math.ceil(11 / tall);
    data.rows.forEach((name, i) => {
      if (i % every) return;
      let text = name;
      while (pen.measureText(text).width > left - 6 && text.length > 2) text = text.slice(0, -1);
      pen.fillText(text, 0, i * tall + Math.max(tall / 2, 6));
    });
    const steps = [1, 5, 15, 60, 300, 900, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];
    const wanted = ((to - from) * 95) / Math.max(wide - left, 1);
    const tick = steps.find((each) => each >= wanted) || Math.ceil(wanted / 2592000) * 2592000;
    pen.strokeStyle = style("--rule");
    for (let t = Math.ceil(from / tick) * tick; t <= to; t += tick) {
      pen.beginPath();
      pen.moveTo(x(t), 0);
      pen.lineTo(x(t), high - foot + 4);
      pen.stroke();
      const text = clock(t);
      if (x(t) + pen.measureText(text).width + 3 < wide) pen.fillText(text, x(t) + 3, high - foot / 2 + 2);
    }
  }

  function zoom(factor, at) {
    const span = Math.min(Math.max((to - from) * factor, Math.min(10, all)), all);
    const share = (at - from) / (to - from);
    from = Math.min(Math.max(at - share * span, 0), all - span);
    to = from + span;
    draw();
  }
  function move(seconds) {
    const span = to - from;
    from = Math.min(Math.max(from + seconds, 0), all - span);
    to = from + span;
    draw();
  }
  function tell(pixel, line_at) {
    const data = shown(), s = second(pixel), row = Math.floor(line_at / line());
    if (pixel < left || row < 0 || row >= data.rows.length) return;
    let text = `${data.rows[row]}, ${clock(Math.max(s, 0))}`, at = null;
    if (chart.exact) {
      const inside = (line_at / line() - row) * 65535;
      for (let i = 0; i < data.count; i++) {
        if (data.row[i] !== row || data.begin[i] > s || data.end[i] < s) continue;
        if (data.offset[i] > inside || data.offset[i] + data.height[i] < inside) continue;
        const user = chart.users[data.user[i]];
        at = data.job[i];
        text += `: job in row ${data.job[i]} of the log${user ? ` of ${user}` : ""}, from ` +
          `${clock(data.begin[i])} to ${clock(data.end[i])}`;
        break;
      }
    } else {
      const bin = Math.floor((s / all) * data.bins);
      text += `: ${Math.round(data.share[row * data.bins + bin] / 2.55)} % of ${chart.device} held`;
    }
    said.textContent = text;
    light(search && search.value ? Number(search.value) : at);
  }
  function light(job) {
    if (job === lit) return;
    lit = job;
    draw();
  }
  function find() {
    const data = shown(), job = search.value ? Number(search.value) : null;
    const mine = job === null ? [] : [...data.job.keys()].filter((i) => data.job[i] === job);
    said.textContent = job === null ? "" : mine.length
      ? `row ${job}: ${new Set(mine.map((i) => data.rows[data.row[i]])).size} nodes, from ` +
        `${clock(data.begin[mine[0]])} to ${clock(data.end[mine[0]])}`
      : `row ${job} of the log is not drawn`;
    light(mine.length ? job : null);
  }
  if (search) search.addEventListener("input", find);
  canvas.addEventListener("pointerleave", () => search && search.value || light(null));

  const middle = () => (from + to) / 2;
  const acts = { in: () => zoom(0.5, middle()), out: () => zoom(2, middle()),
    left: () => move((from - to) / 4), right: () => move((to - from) / 4),
    all: () => zoom(Infinity, middle()) };
  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all" };
  for (const button of box.querySelectorAll("button"))
    button.addEventListener("click", () => acts[button.dataset.do]());
  canvas.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    acts[act]();
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move((event.deltaX / wide) * (to - from));
    else zoom(event.deltaY > 0 ? 1.25 : 0.8, second(event.offsetX));
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => {
    held = event.offsetX;
    canvas.setPointerCapture(event.pointerId);
    tell(event.offsetX, event.offsetY);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held === null) return tell(event.offsetX, event.offsetY);
    move(((held - event.offsetX) / (wide - left)) * (to - from));
    held = event.offsetX;
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (held = null));
  choice.addEventListener("change", draw);
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}
