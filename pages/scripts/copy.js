// A button that puts a text into the clipboard.

function button(parent) {
  const made = Object.assign(document.createElement("button"), { type: "button", className: "weighbridge-copy" });
  const icon = Object.assign(document.createElement("span"), { textContent: "link", ariaHidden: "true" });
  made.append(icon, document.createTextNode(""));
  parent.append(made);
  return made;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text); // only over https and on this machine
    return true;
  } catch {
    const box = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(box);
    box.select();
    const done = document.execCommand("copy");
    box.remove();
    return done;
  }
}

export default function ({ data, parentElement, setTriggerValue }) {
  const copy = parentElement.querySelector(".weighbridge-copy") ?? button(parentElement);
  copy.lastChild.data = data.label;
  copy.onclick = async () => setTriggerValue((await copied(data.text)) ? "copied" : "refused", true);
}
