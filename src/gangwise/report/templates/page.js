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
