// Figures as files: a head, and rows of cells.

const quoted = (cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
const WRITTEN = {
  csv: ({ head, rows }) => [head, ...rows].map((row) => `${row.map((cell) => quoted(`${cell ?? ""}`)).join(",")}\n`).join(""),
  json: ({ head, rows }) => JSON.stringify(rows.map((row) => Object.fromEntries(row.map((cell, at) => [head[at], cell]))), null, 1),
};

// A line of buttons that save what `figures` gives when they are clicked; `line.call` says of what.
export function files(figures) {
  const line = document.createElement("div");
  line.className = "weighbridge-data";
  for (const ending of Object.keys(WRITTEN).reverse()) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `.${ending}`;
    button.onclick = () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([WRITTEN[ending](figures())]));
      link.download = `${line.name}.${ending}`;
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
