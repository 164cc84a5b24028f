// The programs, unpacked; small helpers that all scripts share.

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  // texts become text nodes: whatever a program or workload is called, it is no markup
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
};

const byId = (id) => document.getElementById(id);

// what `packing.packed` wrote: JSON, and behind it the arrays that it refers to
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const whole = await new Response(stream).arrayBuffer();
  const length = new DataView(whole).getUint32(0, true);
  const kinds = {Float32: Float32Array, Uint32: Uint32Array, Uint16: Uint16Array, Uint8: Uint8Array};
  const content = JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 4, length)));
  const found = (value) => {
    if (Array.isArray(value)) return typeof value[0] === "object" ? value.map(found) : value;
    if (value === null || typeof value !== "object") return value;
    if ("array" in value) return new kinds[value.array](whole, 4 + length + value.at, value.count);
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, found(each)]));
  };
  return found(content);
}

// three or four digits, with a prefix where there are many
function shown(value, unit = "", share = false) {
  if (!Number.isFinite(value)) return "not known";
  if (share) return `${(100 * value).toFixed(value < 0.1 ? 1 : 0)}%`;
  if (unit === "µs") {
    for (const [limit, by, name] of [[0.9995, 1e-3, "ns"], [1e3, 1, "µs"], [1e6, 1e3, "ms"], [Infinity, 1e6, "s"]]) {
      if (Math.abs(value) < limit) return `${digits(value / by)} ${name}`;
    }
  }
  const size = Math.abs(value);
  for (const [by, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= by) return `${digits(value / by)} ${prefix}${unit}`.replace(/ ([TGMk])$/, "$1");
  }
  return unit ? `${digits(value)} ${unit}` : digits(value);
}

const digits = (value) => (Number.isInteger(value) && Math.abs(value) < 1e5 ? String(value) : String(Number(value.toPrecision(4))));
const counted = (number) => number.toLocaleString("en-US");

let serial = 0;
// a labelled select; `groups`: heading to [{value, text}]
function chooser(label, groups, value, onchange) {
  const id = `choice-${++serial}`;
  const select = element("select", {id, onchange: () => onchange(select.value)});
  for (const [heading, options] of Object.entries(groups)) {
    const made = options.map((option) => element("option", {value: option.value}, option.text));
    if (heading) select.append(element("optgroup", {label: heading}, ...made));
    else select.append(...made);
  }
  if (value !== undefined) select.value = value;
  const holder = element("div", {}, element("label", {for: id}, label), select);
  return {holder, select};
}

function tick(label, checked, onchange) {
  const input = element("input", {type: "checkbox", onchange: () => onchange(input.checked)});
  input.checked = checked;
  return {holder: element("label", {class: "check"}, input, label), input};
}
