// Nodes of a page: one is made with its properties and what is in it; a property is set where it differs, for each
// change costs the browser.

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export function put(node, property, value) {
  if (node[property] !== value) node[property] = value;
}

// The node of a class within another, made where it is not there yet.
export function within(parent, name, make = () => element("div", { className: name })) {
  const known = parent.querySelector(`.${name}`);
  if (known) return known;
  parent.append(make());
  return parent.querySelector(`.${name}`);
}
