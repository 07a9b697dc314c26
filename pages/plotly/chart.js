// A Plotly figure that comes as JSON. It is drawn in an idle moment, each chart in a task of its own, so that numbers
// are on screen before any chart. A figure with a tree is a pie: a click on a slice looks into it, a click on the middle
// leaves it again.

const later = window.requestIdleCallback ?? ((then) => setTimeout(then, 1));

function library(url) {
  window.weighbridgePlotly ??= new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement("script"), { src: url });
    script.onload = () => resolve(window.Plotly);
    script.onerror = reject;
    document.head.append(script);
  });
  return window.weighbridgePlotly;
}

function place(parent, height, label) {
  let chart = parent.querySelector(".weighbridge-chart");
  if (!chart) {
    chart = Object.assign(document.createElement("div"), { className: "weighbridge-chart" });
    chart.setAttribute("role", "figure");
    parent.append(chart);
  }
  chart.style.height = `${height}px`;
  chart.setAttribute("aria-label", label);
  return chart;
}

// A node of the tree is [name, size, colour, colour of letters, nodes below]; no colour: that of the node above.
function level(tree, path) {
  let [name, size, color, letters, below] = tree.root;
  const names = [];
  for (const step of path) {
    const next = below.find((node) => node[0] === step);
    if (!next?.[4].length) break;
    [name, size, color, letters, below] = [next[0], next[1], next[2] ?? color, next[3] ?? letters, next[4]];
    names.push(name);
  }
  const share = (part, digits) => `${((100 * part) / tree.root[1]).toFixed(digits)}%`;
  const trace = {
    labels: below.map((node) => node[0]),
    values: below.map((node) => node[1]),
    text: below.map((node) => share(node[1], 2)),
    customdata: below.map((node) => [[...names, node[0]].join(" · "), share(node[1], 3)]),
    marker: { ...tree.trace.marker, colors: below.map((node) => node[2] ?? color) },
    insidetextfont: { color: below.map((node) => node[3] ?? letters) },
  };
  const middle = names.length ? `↩ ${name}<br>${share(size, 2)}` : tree.all.replace("{n}", name);
  return { names, data: [{ ...tree.trace, ...trace }], middle: { ...tree.middle, text: middle } };
}

// Two buttons, which show while the mouse is over the chart: it is saved as a picture.
function config(Plotly, chart) {
  const save = (format, icon, scale) => ({
    name: format,
    title: format.toUpperCase(),
    icon,
    click: () => Plotly.downloadImage(chart, { format, scale, filename: chart.shown.label }),
  });
  const buttons = [[save("png", Plotly.Icons.camera, 3), save("svg", Plotly.Icons.disk, 1)]];
  return { ...chart.shown.figure.config, displayModeBar: "hover", displaylogo: false, modeBarButtons: buttons };
}

function draw(Plotly, chart) {
  const { figure, tree } = chart.shown;
  if (!tree) return Plotly.react(chart, figure.data, figure.layout, config(Plotly, chart));
  const { names, data, middle } = level(tree, chart.path);
  chart.path = names;
  const layout = { ...figure.layout, annotations: [middle, ...figure.layout.annotations] };
  Plotly.react(chart, data, layout, config(Plotly, chart));
  if (chart.listens) return;
  chart.listens = true;
  const go = (path) => {
    chart.path = path;
    draw(Plotly, chart);
  };
  chart.on("plotly_click", ({ points }) => go([...chart.path, points[0].label]));
  chart.on("plotly_clickannotation", ({ index }) => index === 0 && go(chart.path.slice(0, -1)));
}

export default function ({ data, parentElement }) {
  const chart = place(parentElement, data.figure.layout.height, data.label);
  chart.path ??= [];
  chart.shown = data;
  library(data.url).then((Plotly) =>
    requestAnimationFrame(() =>
      later(() => chart.shown === data && chart.isConnected && draw(Plotly, chart), { timeout: 250 }),
    ),
  );
}
