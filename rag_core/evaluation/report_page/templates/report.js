"use strict";
const body = document.querySelector("#all tbody");
const rows = [...body.rows];
const filter = document.querySelector("#filter");
const shown = document.querySelector("#shown");

filter.addEventListener("input", () => {
  const words = filter.value.toLowerCase();
  for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(words);
  shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
});

function compare(one, other) {
  const numbers = [parseFloat(one), parseFloat(other)];
  const areNumbers = numbers.every((number) => !Number.isNaN(number));
  return areNumbers ? numbers[0] - numbers[1] : one.localeCompare(other, undefined, { numeric: true });
}

document.querySelectorAll("#all th").forEach((head, column) => {
  head.querySelector("button").addEventListener("click", () => {
    const isAscending = head.getAttribute("aria-sort") === "ascending";
    const sign = isAscending ? -1 : 1;
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", isAscending ? "descending" : "ascending");
    const cell = (row) => row.cells[column].textContent.trim();
    body.append(...rows.sort((one, other) => sign * compare(cell(one), cell(other))));
  });
});

addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
