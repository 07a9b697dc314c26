// A button that puts a text into the clipboard.

import { element, within } from "./dom.js";

function button() {
  const icon = element("span", { textContent: "link", ariaHidden: "true" });
  return element("button", { type: "button", className: "weighbridge-copy" }, icon, document.createTextNode(""));
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text); // only over https and on this machine
    return true;
  } catch {
    const box = element("textarea", { value: text });
    document.body.append(box);
    box.select();
    const done = document.execCommand("copy");
    box.remove();
    return done;
  }
}

export default function ({ data, parentElement, setTriggerValue }) {
  const copy = within(parentElement, "weighbridge-copy", button);
  copy.lastChild.data = data.label;
  copy.onclick = async () => setTriggerValue((await copied(data.text)) ? "copied" : "refused", true);
}
