// The question on top of a page: a sentence whose parts are controls of the browser's own. They belong to the reader: a
// value that anything else sets comes with an element of its own.

import { element, put, within } from "./dom.js";

const TUNED = new Set("instruct it chat base hf thinking sft rl preview fp8 awq gptq gguf".split(" ")); // of the same sizes
const WORD = /(?<!\w)\d{4}-\d{2}(?!\w)|[^\s/_-]+/g;
const DATE = /^(19|20)\d{2}(-\d{2})?$/;
const ID = /^[\w.-]+\/[\w.-]+$/;
const SLICE = /^(mig|[1-7]g)/; // words by which a MIG slice is sought
const PAUSE = 400; // milliseconds after which a number that is being typed counts
const squeezed = (text) => text.toLowerCase().replace(/[\s/_-]+/g, "");

// The rows that have all words, in any order: those first whose names they are.
export function matching(rows, text) {
  const typed = text.toLowerCase().match(WORD) ?? [];
  const decisive = typed.filter((word) => !TUNED.has(word));
  const words = decisive.length ? decisive : typed;
  const has = (row, word) => row.words.includes(word) || (DATE.test(word) && row.month.startsWith(word));
  const named = (row) => [row.name, row.id].some((name) => squeezed(name) === words.join(""));
  const cut = words.some((word) => SLICE.test(word));
  const rest = rows.filter((row) => (cut || !row.slice) && words.every((word) => has(row, word)));
  return [...rest.filter(named), ...rest.filter((row) => !named(row))];
}

const named = (template, name) => template.replace("{n}", name);

// What may be chosen, by language: fetched once, and kept by the browser.
const fetched = new Map();
function lists(address) {
  if (!fetched.has(address)) fetched.set(address, fetch(new URL(address, document.baseURI)).then((answer) => answer.json()));
  return fetched.get(address);
}

function say(bar, name, value) {
  if (JSON.stringify(bar.values[name]) === JSON.stringify(value)) return;
  bar.values[name] = value;
  bar.tell("sentence", { ...bar.values });
}

function describe(node, { label, help }) {
  put(node, "ariaLabel", label);
  put(node, "title", (help ?? "").replaceAll("**", ""));
}

// A number, which counts at once with an arrow key, Enter or another place, and after a pause while it is typed.
function number(bar, name) {
  const input = element("input", { type: "number", inputMode: "numeric", step: 1, value: bar.values[name] });
  const widen = () => (input.style.width = `calc(${Math.max(1, input.value.length)}ch + 1.1em)`);
  const take = () => {
    clearTimeout(input.pause);
    if (input.value !== "" && input.checkValidity()) say(bar, name, Number(input.value));
  };
  input.oninput = () => {
    widen();
    clearTimeout(input.pause);
    input.pause = setTimeout(take, PAUSE);
  };
  input.onchange = take;
  input.onblur = () => {
    take();
    input.value = bar.values[name];
    widen();
  };
  widen();
  input.update = (control) => {
    describe(input, control);
    put(input, "min", String(control.least));
    put(input, "max", String(control.most));
  };
  return input;
}

// One of a few: the browser's own list, over a text that says it in short.
function list(bar, name) {
  const shown = element("span", { ariaHidden: "true" });
  const select = element("select");
  const box = element("span", { className: "list" }, shown, select);
  const settle = () => {
    const usual = bar.data.controls[name].usual ?? null;
    select.value = String(bar.values[name] ?? usual);
    put(shown, "textContent", select.selectedOptions[0]?.short ?? String(bar.values[name] ?? usual));
  };
  select.onchange = () => {
    const { value } = select.selectedOptions[0];
    const chosen = select.options[select.selectedIndex].meant;
    say(bar, name, value === bar.data.controls[name].usual ? null : chosen);
    settle();
  };
  const fill = (options) => {
    const text = JSON.stringify(options);
    if (select.filled === text) return;
    select.filled = text;
    const made = options.map(([meant, label, short]) => element("option", { value: String(meant), label, meant, short }));
    select.replaceChildren(...made);
  };
  box.update = (control) => {
    describe(select, control);
    if (control.options) {
      fill(control.options);
      return settle();
    }
    put(shown, "textContent", String(bar.values[name] ?? control.usual));
    lists(bar.data.lists).then((all) => {
      const mark = ([id, label]) => [id, id === control.usual ? named(bar.data.text.usual, label) : label, id];
      fill(all[name].map(mark));
      settle();
    });
  };
  return box;
}

// A panel below its button, within the screen.
function place(panel, button) {
  const at = button.getBoundingClientRect();
  const width = Math.min(448, innerWidth - 16);
  const top = Math.min(at.bottom + 6, innerHeight - 240);
  Object.assign(panel.style, {
    left: `${Math.max(8, Math.min(at.left, innerWidth - width - 8))}px`,
    top: `${top}px`,
    width: `${width}px`,
    maxHeight: `${innerHeight - top - 12}px`,
  });
}

// One of many: a button that opens a search in place. Of several kinds of GPUs each has a box to stand beside others.
function search(bar, name) {
  const button = element("button", { type: "button" });
  const input = element("input", { type: "search", autocomplete: "off", spellcheck: false, autofocus: true });
  const count = element("p", { role: "status" });
  const rows = element("ul");
  const panel = element("div", { popover: "auto", role: "dialog", className: "weighbridge-choices" }, input, count, rows);
  const several = Array.isArray(bar.values[name]);
  let all = [];

  const close = (chosen, text) => {
    put(button.firstChild, "textContent", text);
    panel.hidePopover();
    say(bar, name, chosen);
  };
  const summary = (chosen) => {
    const only = all.find((row) => row.id === chosen[0]);
    if (chosen.length === 1 && only) return only.short;
    return chosen.length ? named(bar.data.text.several, chosen.length) : bar.data.text.none;
  };
  const choose = (row) => close(several ? [row.id] : row.id, row.short ?? row.name);
  const line = (row) => {
    const [first, ...rest] = row.label.split(" · ");
    const entry = element("button", { type: "button" }, element("b", { textContent: first }), ...rest.map((part) => ` · ${part}`));
    entry.onclick = () => choose(row);
    const item = element("li", {}, entry);
    if (several) {
      const box = element("input", { type: "checkbox", checked: bar.values[name].includes(row.id) });
      box.ariaLabel = named(bar.data.text.compare, first);
      box.title = box.ariaLabel;
      box.onchange = () => {
        const others = bar.values[name].filter((id) => id !== row.id);
        const chosen = box.checked ? [...others, row.id] : others;
        put(button.firstChild, "textContent", summary(chosen));
        say(bar, name, chosen);
      };
      item.append(box);
    } else if (row.id === bar.values[name]) entry.ariaCurrent = "true";
    return item;
  };
  const extra = (text, action) => {
    const entry = element("button", { type: "button", textContent: text });
    entry.onclick = action;
    return element("li", {}, entry);
  };
  const fill = () => {
    const text = input.value.trim();
    const chosen = (row) => several && bar.values[name].includes(row.id);
    const some = text ? matching(all, text) : [...all.filter(chosen), ...all.filter((row) => !row.slice && !chosen(row))];
    const items = some.map(line);
    if (several && !text) {
      const { usual } = bar.data.controls[name];
      items.unshift(extra(named(bar.data.text.all, usual.length), () => close(usual, summary(usual))));
    } else if (!several && ID.test(text) && !all.some((row) => row.id === text)) {
      items.push(extra(named(bar.data.text.from_hub, text), () => close(text, text)));
    } else if (!several && text) {
      items.push(
        extra(named(bar.data.text.look, text), () => {
          panel.hidePopover();
          bar.ask("hub", text);
        }),
      );
    }
    count.textContent = `${some.length} / ${all.length}`;
    rows.replaceChildren(...items);
  };
  const take = async () => {
    await lists(bar.data.lists);
    if (input.value.trim()) rows.querySelector("button")?.click();
  };
  const step = (by) => {
    const entries = [...rows.querySelectorAll("button")];
    const at = entries.indexOf(document.activeElement) + by;
    (at < 0 ? input : entries[Math.min(at, entries.length - 1)])?.focus();
  };
  panel.onbeforetoggle = async ({ newState }) => {
    if (newState !== "open") return;
    input.value = "";
    place(panel, button);
    const own = bar.data.controls[name].own ?? [];
    const known = (await lists(bar.data.lists))[name];
    all = [...own, ...known];
    fill();
  };
  input.oninput = fill;
  panel.onkeydown = (event) => {
    if (event.key === "Enter" && event.target === input) take();
    else if (event.key === "ArrowDown") step(1);
    else if (event.key === "ArrowUp") step(-1);
    else return;
    event.preventDefault();
  };
  button.append(element("span"));
  button.popoverTargetElement = panel;
  const box = element("span", { className: "search" }, button, panel);
  box.update = (control) => {
    put(button.firstChild, "textContent", control.shown);
    put(button, "ariaLabel", `${control.label}: ${control.shown}`);
    put(button, "title", control.help ?? "");
    put(panel, "ariaLabel", control.label);
    put(input, "ariaLabel", bar.data.text.search);
    put(input, "placeholder", bar.data.text.search);
  };
  return box;
}

// A start-up log or an error message: a text area in place. What is pasted is read at once, what is typed with the button
// or Ctrl and Enter.
function paste(bar) {
  const button = element("button", { type: "button" });
  const area = element("textarea", { rows: 7, spellcheck: false, autofocus: true });
  const read = element("button", { type: "button" });
  const panel = element("div", { popover: "auto", role: "dialog", className: "weighbridge-choices" }, area, read);
  const send = () => {
    if (!area.value.trim()) return area.focus();
    panel.hidePopover();
    bar.ask("log", area.value);
    area.value = "";
  };
  area.onpaste = () => setTimeout(send);
  area.onkeydown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
  };
  read.onclick = send;
  panel.onbeforetoggle = ({ newState }) => newState === "open" && place(panel, button);
  button.popoverTargetElement = panel;
  const box = element("span", { className: "paste" }, button, panel);
  box.update = ({ paste, pasted, read: text }) => {
    put(button, "textContent", paste);
    put(button, "title", pasted);
    put(panel, "ariaLabel", paste);
    put(area, "ariaLabel", pasted);
    put(area, "placeholder", pasted);
    put(read, "textContent", text);
  };
  return box;
}

const KINDS = { number, list, search };

function show(bar) {
  const { pieces, controls } = bar.data;
  const order = pieces.map(({ id, comma }) => `${id ?? ""}${comma ?? ""}`).join();
  if (bar.order !== order) {
    bar.order = order;
    bar.paste ??= paste(bar);
    bar.parts = pieces.map(({ id }) => (id ? KINDS[controls[id].kind](bar, id) : element("span")));
    const kept = (part, { comma }) => (comma ? element("span", { className: "kept" }, part, comma) : part);
    bar.replaceChildren(...bar.parts.map((part, at) => kept(part, pieces[at])), bar.paste);
  }
  bar.paste.update(bar.data.text);
  pieces.forEach(({ id, text }, at) => (id ? bar.parts[at].update(controls[id]) : put(bar.parts[at], "textContent", text)));
}

export default function ({ data, parentElement, setStateValue, setTriggerValue }) {
  const made = () => element("div", { className: "weighbridge-question", role: "group", values: { ...data.values } });
  const bar = within(parentElement, "weighbridge-question", made);
  Object.assign(bar, { data, tell: setStateValue, ask: setTriggerValue });
  put(bar, "ariaLabel", data.text.label);
  lists(data.lists);
  show(bar);
}
