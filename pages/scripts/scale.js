// A weighbridge: on the left what one GPU must hold, on the right the GPU. It tips to the heavier side, and swings there
// only where the verdict changes; else it stands at once.

const PIVOT = [160, 128]; // of the beam, in the picture's own units
const ARM = 98; // from there to a post
const POST = 16; // from the beam up to a plate
const HIGHEST = 84; // of the heavier load
const STEEPEST = 9; // degrees

const FRAME = `
<svg viewBox="0 0 320 226" role="img">
  <path class="ground" d="M28 204H292" />
  <path class="foot" d="M160 132L186 203H134Z" /><path class="shade" d="M139 189H181L186 203H134Z" />
  <g class="beam"><rect x="56" y="124" width="208" height="8" rx="4" /></g>
  <circle class="pin" cx="160" cy="128" r="6.5" />
  <g class="left"><path d="M0 0V-14M-50 -16H50" /><g class="parts"></g><text class="figure" /></g>
  <g class="right"><path d="M0 0V-14M-50 -16H50" /><g class="chip"></g><text class="figure" /></g>
  <text class="name" x="4" y="221" /><text class="name end" x="316" y="221" />
</svg>`;

const SVG = "http://www.w3.org/2000/svg";
const put = (node, values) => Object.entries(values).forEach(([name, value]) => node.setAttribute(name, value));

function drawn(tag, values) {
  const node = document.createElementNS(SVG, tag);
  put(node, values);
  return node;
}

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
    return drawn("rect", { x: -42, y: top, width: 84, height: Math.max(0.5, height - 1), fill: color });
  });
}

function chip(share) {
  const height = Math.max(8, HIGHEST * share);
  const pins = [-32, -19, -6, 7, 20, 33].map((x) => `M${x} ${-18 - height}v-5`).join("");
  return [
    drawn("path", { class: "pins", d: pins }),
    drawn("rect", { class: "die", x: -44, y: -18 - height, width: 88, height, rx: Math.min(6, height / 2) }),
  ];
}

export default function ({ data, parentElement }) {
  let box = parentElement.querySelector(".weighbridge-scale");
  if (!box) {
    box = Object.assign(document.createElement("div"), { className: "weighbridge-scale", innerHTML: FRAME });
    parentElement.append(box);
  }
  const find = (name) => box.querySelector(name);
  const turned = degrees(data);
  box.classList.toggle("swings", box.color !== undefined && box.color !== data.color);
  box.color = data.color;
  box.dataset.verdict = data.color;
  find("svg").setAttribute("aria-label", data.label);
  find(".beam").style.transform = `rotate(${turned}deg)`;
  const radians = (turned * Math.PI) / 180;
  [
    [".left", -ARM, data.parts.reduce((sum, [, share]) => sum + share, 0), 24, data.needed],
    [".right", ARM, Math.max(data.gpu, 8 / HIGHEST), 32, data.usable],
  ].forEach(([name, arm, share, room, text]) => {
    const [x, y] = [PIVOT[0] + arm * Math.cos(radians), PIVOT[1] + arm * Math.sin(radians)];
    find(name).style.transform = `translate(${x}px, ${y}px)`;
    const figure = find(`${name} .figure`);
    figure.textContent = text;
    put(figure, { y: -room - HIGHEST * share });
  });
  find(".parts").replaceChildren(...stack(data.parts));
  find(".chip").replaceChildren(...chip(data.gpu));
  find(".name").textContent = data.left;
  find(".end").textContent = data.right;
}
