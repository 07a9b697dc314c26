// Figures as files: a head, and rows of cells; a chart has pictures too.

import { element } from "./dom.js";

const quoted = (cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
const WRITTEN = {
  csv: ({ head, rows }) => [head, ...rows].map((row) => `${row.map((cell) => quoted(`${cell ?? ""}`)).join(",")}\n`).join(""),
  json: ({ head, rows }) => JSON.stringify(rows.map((row) => Object.fromEntries(row.map((cell, at) => [head[at], cell]))), null, 1),
};

// A line of buttons that save what `figures` gives when they are clicked, and of others by the ending of their files;
// `line.call` says of what.
export function files(figures, others = {}) {
  const line = element("div", { className: "weighbridge-data" });
  const write = (ending) => () => {
    const href = URL.createObjectURL(new Blob([WRITTEN[ending](figures())]));
    const link = element("a", { href, download: `${line.name}.${ending}` });
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const actions = { ...Object.fromEntries(Object.keys(WRITTEN).map((ending) => [ending, write(ending)])), ...others };
  for (const [ending, onclick] of Object.entries(actions).reverse()) {
    line.append(element("button", { type: "button", textContent: `.${ending}`, onclick }));
  }
  line.call = (name) => {
    line.name = name;
    for (const button of line.querySelectorAll("button")) button.ariaLabel = `${name} ${button.textContent}`;
  };
  return line;
}
