// Numbers and elements: everything on the page is made through these, and texts only ever become text nodes.

const data = JSON.parse(document.getElementById("data").textContent);
const {programs, columns, tables, comparison} = data;
const SIDES = ["A", "B"];
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// what the value was before it was scaled for the model
function natural(column, value) {
  if (typeof value !== "number" || !column.scale) return value;
  const size = column.scale === "log2" ? 2 ** Math.abs(value) - 1 : Math.expm1(Math.abs(value));
  const whole = Math.round(size);
  // float32 keeps about six digits of a logarithm
  return Math.sign(value) * (Math.abs(size - whole) <= 2e-6 * Math.max(1, whole) * Math.max(1, Math.abs(value)) ? whole : size);
}

function rounded(value, digits = 4) {
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e15 || size < 1e-4)) return value.toExponential(digits - 1);
  for (const [factor, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"]])
    if (size >= factor) return `${Number((value / factor).toPrecision(digits))} ${unit}`;
  return Number(value.toPrecision(digits)).toLocaleString("en", {maximumFractionDigits: 8});
}

function bytes(value) {
  for (const [factor, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
    if (Math.abs(value) >= factor) return `${Number((value / factor).toPrecision(4))} ${unit}`;
  return `${rounded(value)} B`;
}

// the natural value; what is no plain count says so
function worded(column, value) {
  const plain = natural(column, value);
  if (typeof plain !== "number") return plain;
  const unit = column.unit;
  if (unit === "flag" || unit === "0 or 1") return plain === 1 ? "yes" : plain === 0 ? "no" : rounded(plain);
  if (unit === "bytes") return bytes(plain);
  if (unit === "share") return `${Number((100 * plain).toPrecision(3))}%`;
  return rounded(plain);
}

const unitOf = (column) => (column.unit && !["flag", "0 or 1", "bytes", "share"].includes(column.unit) ? `(${column.unit})` : "");
const exact = (value) => (typeof value === "number" ? String(Number(value.toPrecision(7))) : value);
const words = (name) => name.replaceAll("_", " ");
const seconds = (value) =>
  value < 1e-3 ? `${Number((value * 1e6).toPrecision(4))} µs`
  : value < 1 ? `${Number((value * 1e3).toPrecision(4))} ms` : `${Number(value.toPrecision(4))} s`;

const canvas = document.createElement("canvas").getContext("2d");
function textWidth(text, bold = false) {
  canvas.font = `${bold ? "650 " : ""}12.5px system-ui, -apple-system, "Segoe UI", sans-serif`;
  return canvas.measureText(text).width;
}

// a section of the page with its entry in the contents
function section(id, title, lead) {
  document.getElementById("contents").append(el("li", {}, el("a", {href: `#${id}`}, title)));
  const made = el("section", {id, "aria-labelledby": `${id}-title`}, el("h2", {id: `${id}-title`}, title),
    lead ? el("p", {class: "lead"}, lead) : null);
  document.getElementById("main").append(made);
  return made;
}

const checkbox = (label, checked, change, style) =>
  el("label", {style}, el("input", {type: "checkbox", checked: checked, onchange: (event) => change(event.target.checked)}), label);
