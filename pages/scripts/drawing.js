// The drawing of the model, and which part of it was clicked.

export default function ({data, parentElement, setTriggerValue}) {
  let place = parentElement.querySelector("#drawing");
  if (!place) {
    place = document.createElement("div");
    place.id = "drawing";
    parentElement.appendChild(place);
  }
  if (place.dataset.drawn !== data.svg) {
    place.innerHTML = data.svg;
    place.dataset.drawn = data.svg;
  }
  for (const part of place.querySelectorAll("[data-part]")) {
    const take = () => setTriggerValue("part", part.dataset.part);
    part.onclick = take;
    part.onkeydown = (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); take(); }
    };
  }
}
