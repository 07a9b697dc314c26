// A Plotly figure that comes as JSON. It is drawn in an idle moment, each chart in a task of its own, so that numbers
// are on screen before any chart; one that is out of sight is drawn anew once it is seen, or once nothing more comes
// for a while. A figure with a tree is a pie: a click on a slice looks into it, a click on the middle
// leaves it again.

import { element, within } from "./dom.js";
import { files } from "./files.js";

const REST = 1500; // ms
const [NARROWEST, EDGE, LINE] = [480, 8, 20]; // pixels of a picture: its width, at least; around its key; a line of that

const later = window.requestIdleCallback ?? ((then) => setTimeout(then, 1));

function library() {
  window.weighbridgePlotly ??= new Promise((resolve, reject) => {
    const script = element("script", { src: new URL("plotly-4.1.1.min.js", import.meta.url) });
    script.onload = () => resolve(window.Plotly);
    script.onerror = reject;
    document.head.append(script);
  });
  return window.weighbridgePlotly;
}

// Above the chart its name, where that heads it, and what each colour stands for.
function head(parent, { title, figure }) {
  const above = within(parent, "weighbridge-head");
  const told = JSON.stringify([title, figure.colors]);
  if (above.told === told) return;
  above.told = told;
  const mark = (color) => Object.assign(element("em"), { style: `background: ${color}` });
  const keys = figure.colors.map(([color, label]) => element("span", {}, mark(color), label));
  above.replaceChildren(
    ...(title ? [element("h2", { className: "weighbridge-title", textContent: title })] : []),
    ...(keys.length ? [element("div", { className: "weighbridge-keys" }, ...keys)] : []),
  );
}

function place(parent, height, label) {
  const chart = within(parent, "weighbridge-chart", () => element("div", { className: "weighbridge-chart", role: "figure" }));
  chart.style.height = `${height}px`;
  chart.setAttribute("aria-label", label);
  return chart;
}

// Under the chart its figures and itself as files, and a line that puts a table in its place, unless the page has one.
function tabulated(chart, summary) {
  let below = chart.nextElementSibling;
  if (!below) {
    below = files(() => figures(chart.shown), { png: () => save(chart, "png", 3), svg: () => save(chart, "svg", 1) });
    chart.after(below);
  }
  below.call(chart.shown.label);
  let details = below.querySelector("details");
  if (!details && summary) {
    details = element("details", { className: "weighbridge-table" }, element("summary"), element("div", { tabIndex: 0 }));
    details.ontoggle = () => {
      chart.style.display = details.open ? "none" : "";
      details.lastChild.style.height = chart.style.height;
      details.lastChild.replaceChildren(...(details.open ? [table(chart.shown)] : []));
    };
    below.append(details);
  }
  if (!details) return;
  details.firstChild.textContent = summary;
  if (details.open) details.ontoggle();
}

// What a chart shows, in plain words and whole numbers: a head, and rows.
function figures({ figure, tree, file }) {
  const [head, rows] = file ?? (tree ? slices(tree) : series(figure));
  const plain = (cell) => (typeof cell === "number" ? cell : `${cell ?? ""}`.replace(/<[^>]*>/g, " ").trim());
  return { head: head.map((name) => plain(name) || "name"), rows: rows.map((row) => row.map(plain)) };
}

function table({ label, ...shown }) {
  const { head, rows } = figures(shown);
  const line = (cells, tag) => {
    const written = (cell) => (typeof cell === "number" ? cell.toLocaleString("en", { maximumFractionDigits: 2 }) : cell);
    return element("tr", {}, ...cells.map((cell) => element(tag, { textContent: written(cell) })));
  };
  return element("table", { ariaLabel: label }, line(head, "th"), ...rows.map((row) => line(row, "td")));
}

function slices({ root }) {
  const rows = [];
  const walk = (node, names) => {
    for (const below of node[4]) {
      rows.push([[...names, below[0]].join(" · "), below[1], `${((100 * below[1]) / root[1]).toFixed(3)}%`]);
      walk(below, [...names, below[0]]);
    }
  };
  walk(root, []);
  return [["", "parameters", "%"], rows];
}

// Bars: a row for each category, a column for each part. A map: a row for each of its rows. Boxes, points and lines: a
// row for each point.
function series({ data, layout }) {
  const axes = [layout.xaxis, layout.yaxis].map((axis) => axis?.title?.text ?? "");
  const bars = data.filter((trace) => trace.type === "bar" && trace.name);
  if (bars.length) {
    const flat = bars[0].orientation === "h";
    const names = bars[0][flat ? "y" : "x"];
    const marks = data.filter((trace) => trace.mode === "markers" && trace.hoverinfo !== "skip" && trace.x.length === names.length);
    const parts = [...bars, ...marks];
    const rows = names.map((name, at) => [name, ...parts.map((trace) => trace[flat ? "x" : "y"][at])]);
    const unit = layout.meta ? `, ${layout.meta}` : "";
    return [[axes[flat ? 1 : 0], ...parts.map((trace) => `${trace.name}${unit}`)], rows];
  }
  const [{ type, x, text, customdata }] = data;
  if (type === "heatmap") return [["", ...x], text.map((row, at) => [customdata[at][0], ...row])];
  if (type === "box") return [["kind", "name", "percent"], data.flatMap((box) => box.x.map((size, at) => [box.name, box.text[at], size]))];
  const rows = data.flatMap((trace) => (trace.x ?? []).map((x, at) => [trace.text?.[at] || trace.name, x, trace.y[at]]));
  return [["", ...axes], rows];
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

// The chart as it is seen, for a file: with the ground that it stands on, the key above it, and letters of a font that
// a picture has, for in others names would be wider than their margin.
function picture({ data, layout, shown, clientWidth }) {
  const width = Math.max(clientWidth, NARROWEST);
  const font = { ...layout.font, family: "sans-serif" };
  const key = lines(shown.figure.colors, width - 2 * EDGE, font);
  const above = key.length * LINE;
  const text = { text: key.join("<br>"), x: 0, xref: "container", xanchor: "left", y: 1, yref: "container", yanchor: "top" };
  const title = { ...text, font: { size: font.size }, pad: { l: EDGE, t: EDGE + ((key.length - 1) * LINE) / 2 } };
  return {
    data,
    layout: {
      ...layout,
      ...(above && { title }),
      ...{ width, height: layout.height + above, margin: { ...layout.margin, t: layout.margin.t + above } },
      ...{ font, paper_bgcolor: layout.hoverlabel.bgcolor },
    },
  };
}

// Colours with what they stand for, in lines of a width.
function lines(colors, width, { size, family }) {
  const pen = element("canvas").getContext("2d");
  pen.font = `${size}px ${family}`;
  const lines = [];
  let rest = 0;
  for (const [color, label] of colors) {
    const needs = pen.measureText(`MM${label}`).width;
    const mark = `<span style="color:${color};font-size:18px">■</span> ${label.replaceAll("<", "&lt;")}`;
    if (needs > rest) {
      lines.push(mark);
      rest = width;
    } else lines.push(`${lines.pop()}\u2003${mark}`);
    rest -= needs;
  }
  return lines;
}

async function save(chart, format, scale) {
  const Plotly = await library();
  if (chart.drawn !== chart.shown) draw(Plotly, chart);
  Plotly.downloadImage(picture(chart), { format, scale, filename: chart.shown.label });
}

const CONFIG = { responsive: true, displayModeBar: false };

function draw(Plotly, chart) {
  const { figure, tree } = (chart.drawn = chart.shown);
  if (!tree) {
    Plotly.react(chart, figure.data, figure.layout, CONFIG);
    if (figure.layout.clickmode && !chart.listens) {
      chart.listens = true;
      chart.on("plotly_click", ({ points }) => chart.choose(points[0].customdata));
      chart.on("plotly_deselect", () => chart.choose(null));
    }
    return;
  }
  const { names, data, middle } = level(tree, chart.path);
  chart.path = names;
  const layout = { ...figure.layout, annotations: [middle] };
  Plotly.react(chart, data, layout, CONFIG);
  if (chart.listens) return;
  chart.listens = true;
  const go = (path) => {
    chart.path = path;
    draw(Plotly, chart);
  };
  chart.on("plotly_click", ({ points }) => go([...chart.path, points[0].label]));
  chart.on("plotly_clickannotation", ({ index }) => index === 0 && go(chart.path.slice(0, -1)));
}

function refresh(chart) {
  const data = chart.shown;
  library().then((Plotly) =>
    requestAnimationFrame(() =>
      later(() => chart.shown === data && chart.drawn !== data && chart.isConnected && draw(Plotly, chart), {
        timeout: 250,
      }),
    ),
  );
}

const sight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    target.inSight = isIntersecting;
    if (isIntersecting) refresh(target);
  }
});

addEventListener("beforeprint", () => {
  for (const chart of document.querySelectorAll(".weighbridge-chart")) {
    if (window.Plotly && chart.shown && chart.drawn !== chart.shown) draw(window.Plotly, chart);
  }
});

export default function ({ data, parentElement, setStateValue }) {
  head(parentElement, data);
  const chart = place(parentElement, data.figure.layout.height, [data.label, data.told].filter(Boolean).join(". "));
  chart.path ??= [];
  chart.choose = (point) => setStateValue("point", point);
  chart.shown = data;
  tabulated(chart, data.table);
  sight.observe(chart);
  clearTimeout(chart.rest);
  if (chart.inSight || !chart.drawn) refresh(chart);
  else chart.rest = setTimeout(refresh, REST, chart);
}
