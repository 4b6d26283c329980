// Sort a table by the column whose heading is pressed; press again for the other direction.
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement;
    const table = head.closest("table");
    const column = head.cellIndex;
    const first = column === 0 ? "ascending" : "descending";
    const other = column === 0 ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const key = (row) => {
      const cell = row.cells[column];
      if (column === 0) return cell.textContent;
      return cell.dataset.value ? Number(cell.dataset.value) : NaN;
    };
    const compare = (a, b) => {
      const x = key(a), y = key(b);
      if (column === 0) return sign * x.localeCompare(y);
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
      return sign * (x - y);
    };
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort(compare));
  });
}
