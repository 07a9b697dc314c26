// Numbers beside each other, each a button that opens its derivation.

import { element, put, within } from "./dom.js";

const card = () => element("button", { type: "button" }, ...["span", "b", "small"].map((tag) => element(tag)));

export default function ({ data, parentElement, setTriggerValue }) {
  const grid = within(parentElement, "weighbridge-figures");
  grid.style.setProperty("--columns", data.columns);
  while (grid.children.length > data.figures.length) grid.lastChild.remove();
  data.figures.forEach(({ id, label, value, open, color }, at) => {
    if (!grid.children[at]) grid.append(card());
    const button = grid.children[at];
    [label, value, data.derivation].forEach((text, part) => put(button.children[part], "textContent", text));
    button.setAttribute("aria-expanded", open);
    button.style.borderTop = color ? `4px solid ${color}` : "";
    button.onclick = () => setTriggerValue("asked", id);
  });
}
