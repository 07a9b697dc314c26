"""A button that puts a text into the clipboard, which no element of Streamlit's own does with one click."""

import streamlit as st

HTML = '<button type="button"><span aria-hidden="true">link</span><b></b></button>'
CSS = """
button {
  display: inline-flex; align-items: center; gap: 0.5rem; min-height: 2.5rem; padding: 0.25rem 0.75rem;
  border: 1px solid var(--st-border-color); border-radius: var(--st-button-radius); cursor: pointer;
  background: var(--st-background-color); color: var(--st-text-color); font: 400 0.875rem var(--st-font);
  white-space: nowrap;
}
button:hover, button:focus-visible { border-color: var(--st-primary-color); color: var(--st-primary-color); }
span { font-family: "Material Symbols Rounded"; font-size: 1.125rem; line-height: 1; }
b { font-weight: 400; }
"""
SCRIPT = """
export default function ({ data, parentElement, setTriggerValue }) {
  const button = parentElement.querySelector("button");
  button.querySelector("b").textContent = data.label;
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(data.text);  // only over https and on this machine
    } catch {
      const box = document.createElement("textarea");
      box.value = data.text;
      document.body.append(box);
      box.select();
      const copied = document.execCommand("copy");
      box.remove();
      if (!copied) return setTriggerValue("refused", true);
    }
    setTriggerValue("copied", true);
  };
}
"""
BUTTON = st.components.v2.component("weighbridge_copy", html=HTML, css=CSS, js=SCRIPT)


def nothing() -> None:
    """A click is asked about in the run that it starts."""


def copy_button(label: str, text: str, done: str) -> None:
    """With a toast once it is copied; where a browser forbids that, the text to be copied by hand."""
    clicked = BUTTON(
        key="copy",
        data={"label": label, "text": text},
        on_copied_change=nothing,
        on_refused_change=nothing,
        width="content",
        height="content",
    )
    if clicked.copied:
        st.toast(done, icon=":material/check:")
    if clicked.refused:
        st.code(text, language=None, wrap_lines=True)
