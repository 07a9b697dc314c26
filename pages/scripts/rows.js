// A table: a head that is clicked sorts its rows, a row that is clicked is told to the server, and so is a button in a
// cell. A long one shows its first rows, a field to search all of them, and a button for the rest. What stays as it was
// is left alone, so that the focus stays too.

import { element, put } from "./dom.js";
import { files } from "./files.js";

const PATIENCE = 5000; // milliseconds for which a card is waited for
const narrow = matchMedia("(max-width: 640px)");
const first = () => (narrow.matches ? 8 : 24); // rows
const written = (options) => {
  const format = new Intl.NumberFormat("en", options);
  return (value) => format.format(value);
};
const whole = written({ maximumFractionDigits: 0 });
const two = written({ minimumFractionDigits: 2, maximumFractionDigits: 2 });
const three = written({ minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
const percent = written({ style: "percent", maximumFractionDigits: 1 });
const TEXTS = ["text", "name", "button", "link"];
const WRITTEN = {
  text: String,
  name: String,
  button: String,
  link: String,
  whole,
  one: written({ minimumFractionDigits: 1, maximumFractionDigits: 1 }),
  two,
  figure: written({ maximumFractionDigits: 2 }),
  four: written({ maximumSignificantDigits: 4 }),
  percent: (value) => (value > 0 && value < 0.001 ? "<\u00a00.1%" : percent(value)),
  error: written({ style: "percent", minimumFractionDigits: 2, maximumFractionDigits: 2, signDisplay: "negative" }),
  mark: (value) => (value ? "✓" : "✗"),
  times: (value) => `${two(value)}x`,
  rate: (value) => (value < 1 ? two : three)(value),
  gauge: ([word, share]) => (share === null ? word : `${word} ·\u00a0${whole(100 * share)}%`),
  dollars: (value) => `$${two(value)}`,
};

// A number stays with the word before it: ZeRO-3. What a file or a search has is the text without the joiner.
const joined = (text) => text.replace(/-(?=\d)/g, "-\u2060");
const shownAs = (value, kind) => (typeof value === "string" ? joined(value) : WRITTEN[kind](value));

// A cell holds a text, or a button where something can be done with it.
function fill(cell, value, kind, action) {
  const text = value === null || value === "" ? (kind === "button" ? "" : "–") : shownAs(value, kind);
  if (action && text) {
    if (cell.firstChild?.tagName !== "BUTTON") cell.replaceChildren(element("button", { type: "button" }));
    put(cell.firstChild, "textContent", text);
    cell.firstChild.onclick = (event) => {
      event.stopPropagation();
      action();
    };
  } else if (kind === "link" && value) {
    if (!cell.firstChild) cell.append(element("a", { target: "_blank", rel: "noopener" }));
    put(cell.firstChild, "href", value);
    put(cell.firstChild, "textContent", new URL(value).hostname.replace("www.", ""));
  } else put(cell, "textContent", text);
  if (kind === "gauge") {
    const share = value[1]; // without one there is no bar
    cell.style.setProperty("--share", share === null ? "" : `${Math.min(100, 100 * share)}%`);
    cell.classList.toggle("over", share > 1);
  }
}

function sorted({ rows, columns }, { column, up }) {
  if (column === null) return rows;
  // Among numbers a text is that there is no limit; a gauge without a share comes after all others.
  const { kind } = columns[column];
  const numbers = !TEXTS.includes(kind);
  const size = (value) => (kind === "gauge" ? (value[1] ?? Infinity) : typeof value === "string" ? Infinity : value);
  const least = (a, b) => (numbers ? (size(a) === size(b) ? 0 : size(a) - size(b)) : String(a).localeCompare(String(b)));
  const cell = (row) => row.cells[column] ?? "";
  return [...rows].sort((a, b) => (cell(a) === "") - (cell(b) === "") || (up ? 1 : -1) * least(cell(a), cell(b)));
}

// First a number's largest, a text's first and the gauge with the most room, then the other way round, then as they came.
function turn(order, column, kind) {
  const begins = [...TEXTS, "gauge"].includes(kind);
  if (order.column !== column) return { column, up: begins };
  return order.up === begins ? { column, up: !begins } : { column: null, up: true };
}

function heads(table, data, again) {
  const names = data.columns.map((column) => column.label).join("\n");
  if (table.heads !== names) {
    table.heads = names;
    const sorting = table.data?.columns[table.order.column]?.label;
    if (sorting === undefined || sorting !== data.columns[table.order.column]?.label) table.order = { column: null, up: true };
    const head = data.columns.map(({ label, help, kind }, at) => {
      const button = element("button", { type: "button", textContent: label, title: help ?? "" });
      button.onclick = () => {
        table.order = turn(table.order, at, kind);
        again();
      };
      return element("th", { scope: "col", className: kind }, button);
    });
    table.tHead.replaceChildren(element("tr", {}, ...head));
    table.tBodies[0].replaceChildren();
    table.made = new Map();
  }
  [...table.tHead.rows[0].cells].forEach((cell, at) => {
    const sort = table.order.column === at ? (table.order.up ? "ascending" : "descending") : "none";
    cell.setAttribute("aria-sort", sort);
  });
}

// Rows that have every word that is looked for.
function matching({ rows }, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter(({ cells }) => words.every((word) => cells.join(" ").toLowerCase().includes(word)));
}

// Of a long table a field above it and a button below.
function bounds(table, data, again) {
  const frame = table.parentElement;
  const [field, rest] = [frame.querySelector("input"), frame.querySelector(".rest")];
  field.oninput = again;
  rest.onclick = () => {
    table.whole = true;
    again();
  };
  put(field, "hidden", data.rows.length <= first());
  put(field, "placeholder", data.text.search);
  put(field, "ariaLabel", `${data.text.search}: ${data.label}`);
  const found = field.hidden ? data.rows : matching(data, field.value);
  const cut = !table.whole && found.length > first();
  put(rest, "hidden", !cut);
  put(rest, "textContent", data.text.rest.replace("{n}", found.length));
  return { found, most: cut ? first() : found.length };
}

function show(table, data, tell) {
  const again = () => show(table, table.data, table.tell);
  heads(table, data, again);
  Object.assign(table, { data, tell });
  table.setAttribute("aria-label", data.label);
  const { found, most } = bounds(table, data, again);
  const shown = sorted({ ...data, rows: found }, table.order).slice(0, most).map((row) => {
    if (!table.made.has(row.id)) {
      const cells = data.columns.map(({ kind }, at) => element(at ? "td" : "th", { className: kind, translate: kind !== "name" }));
      cells.forEach((cell, at) => (cell.dataset.label = data.columns[at].label)); // where it is a card
      cells[0].scope = "row";
      table.made.set(row.id, element("tr", {}, ...cells));
    }
    const line = table.made.get(row.id);
    const choose = data.opens && (() => tell.choose(row.id));
    data.columns.forEach(({ kind }, at) => {
      const action = at === 0 ? choose : kind === "button" && (() => tell.use(row.id));
      fill(line.cells[at], row.cells[at], kind, action);
    });
    if (data.opens) {
      line.onclick = ({ target }) => target.tagName === "A" || choose();
      line.classList.toggle("chosen", data.chosen.includes(row.id));
      line.cells[0].firstChild.setAttribute(data.several ? "aria-pressed" : "aria-expanded", data.chosen.includes(row.id));
    }
    return line;
  });
  const body = table.tBodies[0];
  if (shown.length !== body.rows.length || shown.some((line, at) => line !== body.rows[at])) body.replaceChildren(...shown);
}

// A row that was clicked is open, and another is not unless several may be; or it is closed again.
function toggled({ chosen, several }, id) {
  if (chosen.includes(id)) return chosen.filter((other) => other !== id);
  return several ? [...chosen, id] : [id];
}

// The card of a row that was clicked comes with the next answer, below the table: it comes into sight.
function reveal(id) {
  const until = performance.now() + PATIENCE;
  const look = () => {
    const card = document.querySelector(`.st-key-card_${CSS.escape(id)}`);
    if (card) card.scrollIntoView({ block: "nearest" });
    else if (performance.now() < until) requestAnimationFrame(look);
  };
  look();
}

// The figures as they are, a gauge as its word and its share.
const figures = ({ columns, rows }) => ({
  head: columns.map(({ label }) => label),
  rows: rows.map(({ cells }) => cells.map((cell) => (Array.isArray(cell) ? cell.filter((part) => part !== null).join(" ") : cell))),
});

export default function ({ data, parentElement, setTriggerValue }) {
  let frame = parentElement.querySelector(".weighbridge-rows");
  if (!frame) {
    const table = element("table", { order: { column: null, up: true } }, element("thead"), element("tbody"));
    const field = element("input", { type: "search", autocomplete: "off", spellcheck: false });
    const rest = element("button", { type: "button", className: "rest" });
    frame = element("div", { className: "weighbridge-rows" }, field, table, rest);
    parentElement.append(frame, files(() => figures(table.data)));
  }
  frame.nextElementSibling.call(data.label);
  const table = frame.querySelector("table");
  const tell = {
    use: (id) => setTriggerValue("use", id),
    choose: (id) => {
      const chosen = toggled(table.data, id);
      show(table, { ...table.data, chosen }, table.tell);
      setTriggerValue("row", chosen);
      if (!data.several && chosen.length) reveal(id);
    },
  };
  show(table, data, tell);
}
