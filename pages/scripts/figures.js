// Numbers beside each other, each a button that opens its derivation.

function put(node, property, value) {
  if (node[property] !== value) node[property] = value;
}

function card() {
  const button = Object.assign(document.createElement("button"), { type: "button" });
  button.append(...["span", "b", "small"].map((tag) => document.createElement(tag)));
  return button;
}

export default function ({ data, parentElement, setTriggerValue }) {
  let grid = parentElement.querySelector(".weighbridge-figures");
  if (!grid) {
    grid = Object.assign(document.createElement("div"), { className: "weighbridge-figures" });
    parentElement.append(grid);
  }
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
