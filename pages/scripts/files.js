// Figures as files: a head, and rows of cells.

import { element } from "./dom.js";

const quoted = (cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
const WRITTEN = {
  csv: ({ head, rows }) => [head, ...rows].map((row) => `${row.map((cell) => quoted(`${cell ?? ""}`)).join(",")}\n`).join(""),
  json: ({ head, rows }) => JSON.stringify(rows.map((row) => Object.fromEntries(row.map((cell, at) => [head[at], cell]))), null, 1),
};

// A line of buttons that save what `figures` gives when they are clicked; `line.call` says of what.
export function files(figures) {
  const line = element("div", { className: "weighbridge-data" });
  for (const ending of Object.keys(WRITTEN).reverse()) {
    const button = element("button", { type: "button", textContent: `.${ending}` });
    button.onclick = () => {
      const href = URL.createObjectURL(new Blob([WRITTEN[ending](figures())]));
      const link = element("a", { href, download: `${line.name}.${ending}` });
      link.click();
      URL.revokeObjectURL(link.href);
    };
    line.append(button);
  }
  line.call = (name) => {
    line.name = name;
    for (const button of line.querySelectorAll("button")) button.ariaLabel = `${name} ${button.textContent}`;
  };
  return line;
}
