// The links to places and views: the one that is open is marked for who does not see its line. And a deed of the reader
// is one step of the history at most: on the way to another page Streamlit makes two, the address that it leaves with the
// query of the other, then the other's. And on a phone, where the sidebar lies over the answer, it is closed for who
// comes again: what Streamlit remembers of it is forgotten with the page.

let pushed = false;
const push = history.pushState;
history.pushState = function (...step) {
  (pushed ? history.replaceState : push).apply(history, step);
  pushed = true;
};
for (const deed of ["pointerdown", "click", "keydown", "input", "popstate"]) addEventListener(deed, () => (pushed = false), true);

addEventListener("visibilitychange", () => {
  if (!matchMedia("(max-width: 768px)").matches) return;
  for (const key of Object.keys(localStorage)) if (key.startsWith("stSidebarCollapsed-")) localStorage.removeItem(key);
});

function mark(ways) {
  for (const link of ways.querySelectorAll("a")) {
    const open = link.closest(".st-key-current_place, .st-key-current_view");
    if (open) link.ariaCurrent = "page";
    else link.removeAttribute("aria-current");
  }
}

const watched = new WeakSet();
export default function ({ parentElement }) {
  const ways = parentElement.closest(".st-key-navigation");
  mark(ways);
  if (watched.has(ways)) return;
  watched.add(ways);
  const changes = { subtree: true, childList: true, attributes: true, attributeFilter: ["class"] };
  new MutationObserver(() => mark(ways)).observe(ways, changes); // of who comes later than this
}
