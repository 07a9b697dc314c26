// A weighbridge: on the left what one GPU must hold, on the right the GPU. It tips to the heavier side, and swings there
// only where the verdict changes; else it stands at once.

import { element, put, within } from "./dom.js";

const PIVOT = [160, 128]; // of the beam, in the picture's own units
const ARM = 98; // from there to a post
const HIGHEST = 84; // of the heavier load
const STEEPEST = 9; // degrees

const FRAME = `
<svg viewBox="0 0 320 226" role="img">
  <path class="ground" d="M28 204H292" />
  <path class="foot" d="M160 132L186 203H134Z" /><path class="shade" d="M139 189H181L186 203H134Z" />
  <g class="beam"><rect x="56" y="124" width="208" height="8" rx="4" /></g>
  <circle class="pin" cx="160" cy="128" r="6.5" />
  <g class="left"><path d="M0 0V-14M-50 -16H50" /><g class="parts"></g><text class="figure" /></g>
  <g class="right"><path d="M0 0V-14M-50 -16H50" /><path class="pins" /><rect class="die" x="-44" width="88" /><text class="figure" /></g>
  <text class="name" x="4" y="221" /><text class="name end" x="316" y="221" />
</svg>`;

const SVG = "http://www.w3.org/2000/svg";

function set(node, values) {
  for (const [name, value] of Object.entries(values)) {
    if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
}

// So many pieces of a kind within a group, each with its values.
function fill(group, tag, pieces) {
  while (group.children.length > pieces.length) group.lastChild.remove();
  while (group.children.length < pieces.length) group.append(document.createElementNS(SVG, tag));
  pieces.forEach((values, at) => set(group.children[at], values));
}

const rounded = (value) => Math.round(10 * value) / 10;

// As steep as one side is heavier, in doublings; a load that just fits stands nearly level.
function degrees({ parts, gpu }) {
  const needed = parts.reduce((sum, [, share]) => sum + share, 0);
  const tilt = 6 * Math.log2(gpu / needed);
  return Math.max(-STEEPEST, Math.min(STEEPEST, tilt));
}

function stack(parts) {
  let top = -18;
  return parts.map(([color, share]) => {
    const height = HIGHEST * share;
    top -= height;
    return { x: -42, y: rounded(top), width: 84, height: rounded(Math.max(0.5, height - 1)), fill: color };
  });
}

function chip(box, share) {
  const height = rounded(Math.max(8, HIGHEST * share));
  set(box.querySelector(".pins"), { d: [-32, -19, -6, 7, 20, 33].map((x) => `M${x} ${-18 - height}v-5`).join("") });
  set(box.querySelector(".die"), { y: -18 - height, height, rx: Math.min(6, height / 2) });
}

export default function ({ data, parentElement }) {
  const made = () => element("div", { className: "weighbridge-scale", innerHTML: FRAME });
  const box = within(parentElement, "weighbridge-scale", made);
  const find = (name) => box.querySelector(name);
  const turned = rounded(degrees(data));
  const before = box.dataset.verdict;
  set(box, { class: `weighbridge-scale${before && before !== data.color ? " swings" : ""}`, "data-verdict": data.color });
  set(find("svg"), { "aria-label": data.label });
  find(".beam").style.transform = `rotate(${turned}deg)`;
  const radians = (turned * Math.PI) / 180;
  [
    [".left", -ARM, data.parts.reduce((sum, [, share]) => sum + share, 0), 24, data.needed],
    [".right", ARM, Math.max(data.gpu, 8 / HIGHEST), 32, data.usable],
  ].forEach(([name, arm, share, room, text]) => {
    const [x, y] = [PIVOT[0] + arm * Math.cos(radians), PIVOT[1] + arm * Math.sin(radians)].map(rounded);
    find(name).style.transform = `translate(${x}px, ${y}px)`;
    const figure = find(`${name} .figure`);
    put(figure, "textContent", text);
    set(figure, { y: rounded(-room - HIGHEST * share) });
  });
  fill(find(".parts"), "rect", stack(data.parts));
  chip(box, data.gpu);
  put(find(".name"), "textContent", data.left);
  put(find(".end"), "textContent", data.right);
}
