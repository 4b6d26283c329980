// Sort a table by the column whose heading is pressed; press again for the other direction.
// Columns of words start from A, columns of numbers from the largest.
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement;
    const table = head.closest("table");
    const column = head.cellIndex;
    const words = head.classList.contains("words");
    const first = words ? "ascending" : "descending";
    const other = words ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const key = (row) => {
      const cell = row.cells[column];
      if (words) return cell.textContent;
      return cell.dataset.value ? Number(cell.dataset.value) : NaN;
    };
    const compare = (a, b) => {
      const x = key(a), y = key(b);
      if (words) return sign * x.localeCompare(y, undefined, { numeric: true });
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
      return sign * (x - y);
    };
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort(compare));
  });
}
// A link to something folded opens it.
const unfold = () => {
  const id = decodeURIComponent(location.hash.slice(1));
  const target = id && document.getElementById(id);
  const folded = target && target.closest("details");
  if (folded && !folded.open) {
    folded.open = true;
    target.scrollIntoView();
  }
};
addEventListener("hashchange", unfold);
unfold();
// Values of the lines where the pointer is: lines carry their points, drawings their axes.
const precise = (value) => Number(value.toPrecision(4)).toLocaleString("en");
for (const drawing of document.querySelectorAll(".plot svg[data-axes]")) {
  const [x0, x1, y0, y1, left, right, bottom, top, logX, logY] =
    drawing.dataset.axes.split(" ").map(Number);
  const between = (low, high, share, log) =>
    log ? low * (high / low) ** share : low + (high - low) * share;
  const joined = (line) => line.querySelector(":scope > path"); // else it is marks alone
  const points = (line) => {
    if (!joined(line))
      return [...line.querySelectorAll("circle")].map((mark) => [mark.cx.baseVal.value, mark.cy.baseVal.value]);
    const numbers = (joined(line).getAttribute("d").match(/-?[\d.]+/g) || []).map(Number);
    return numbers.flatMap((x, i) => (i % 2 ? [] : [[x, numbers[i + 1]]]));
  };
  const lines = [...drawing.querySelectorAll("[data-line]")]
    .map((line) => [Number(line.dataset.line), points(line), joined(line)]);
  const figure = drawing.closest("figure");
  const outputs = figure.querySelectorAll(".key output");
  const where = figure.querySelector("h3 output");
  const cross = document.createElementNS("http://www.w3.org/2000/svg", "path");
  cross.setAttribute("class", "cross");
  drawing.append(cross);
  const show = (event) => {
    const box = drawing.getBoundingClientRect();
    const shown = ((event.clientX - box.left) / box.width) * drawing.viewBox.baseVal.width;
    const x = Math.min(Math.max(shown, left), right);
    cross.setAttribute("d", `M${x} ${bottom}V${top}`);
    where.value = `at ${precise(between(x0, x1, (x - left) / (right - left), logX))}`;
    for (const output of outputs) output.value = "";
    for (const [i, path, drawn] of lines) {
      if (!outputs[i]) continue; // a single line has no key
      if (!drawn) { // the mark that is nearest, if one is near
        const [near] = [...path].sort((a, b) => Math.abs(a[0] - x) - Math.abs(b[0] - x));
        if (near && Math.abs(near[0] - x) < 6)
          outputs[i].value = precise(between(y0, y1, (bottom - near[1]) / (bottom - top), logY));
        continue;
      }
      const next = path.findIndex((point) => point[0] >= x);
      if (next < 0 || (next === 0 && path[0][0] > x + 1)) continue;
      const [a, b] = [path[Math.max(next - 1, 0)], path[next]];
      const y = b[0] > a[0] ? a[1] + ((b[1] - a[1]) * (x - a[0])) / (b[0] - a[0]) : b[1];
      outputs[i].value = precise(between(y0, y1, (bottom - y) / (bottom - top), logY));
    }
  };
  const clear = () => {
    cross.removeAttribute("d");
    for (const output of [where, ...outputs]) output.value = "";
  };
  drawing.addEventListener("pointermove", show);
  drawing.addEventListener("pointerdown", show);
  drawing.addEventListener("pointerleave", clear);
}
