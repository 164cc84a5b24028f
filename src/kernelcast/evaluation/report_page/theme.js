// The look of the plots: colours follow the page, light or dark.

const dark = matchMedia("(prefers-color-scheme: dark)");
const coarse = matchMedia("(pointer: coarse)");
const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// after Okabe and Ito, told apart with any colour vision; the darkest two would vanish on a dark screen
const LIGHT = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F3C8D", "#333333"];
const DARK = ["#4AA3DF", "#F07F2E", "#2FBF94", "#E59CC6", "#8FD0F5", "#F2B83B", "#C08AD6", "#C9D2DE"];
const SHAPES = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star"];
const palette = () => (dark.matches ? DARK : LIGHT);
const OTHERS = "#8c97a6";

// what Python drew in the colours of paper, in those of this screen
function themed(value) {
  if (!dark.matches) return value;
  const swaps = {"#1c2430": token("ink"), "#e2e5e9": token("line"), "#8a94a3": token("edge"), white: token("paper")};
  LIGHT.forEach((colour, place) => { swaps[colour.toLowerCase()] = DARK[place]; });
  const swapped = (text) => {
    const rgba = /^rgba\((\d+), (\d+), (\d+), ([\d.]+)\)$/.exec(text);
    if (rgba) {
      const hex = "#" + rgba.slice(1, 4).map((part) => Number(part).toString(16).padStart(2, "0")).join("");
      const [to, share] = [swaps[hex], Number(rgba[4])];
      return to ? `${to}${Math.round(255 * share).toString(16).padStart(2, "0")}` : text;
    }
    return swaps[text.toLowerCase()] ?? text;
  };
  const walk = (each) => {
    if (typeof each === "string") return swapped(each);
    if (Array.isArray(each)) return each.map(walk);
    if (each && typeof each === "object") return Object.fromEntries(Object.entries(each).map(([key, inner]) => [key, walk(inner)]));
    return each;
  };
  return walk(value);
}

const axisLook = () => ({
  gridcolor: token("line"), linecolor: token("edge"), tickcolor: token("edge"), zeroline: false, showline: true, automargin: true,
  title: {font: {size: 13}, standoff: 8},
});

const layoutLook = () => ({
  font: {family: "system-ui, -apple-system, 'Segoe UI', sans-serif", size: 13, color: token("ink")},
  plot_bgcolor: "rgba(0,0,0,0)", paper_bgcolor: "rgba(0,0,0,0)", hovermode: "closest", autosize: true,
  margin: {l: 8, r: 12, t: 30, b: 8}, transition: {duration: 0},
  modebar: {bgcolor: "rgba(0,0,0,0)", color: token("edge"), activecolor: token("accent")},
});

const settings = {responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"]};

// plots that Python drew: each when it comes near the screen
function drawCharts() {
  const drawn = new Map();
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      near.unobserve(entry.target);
      drawn.get(entry.target)();
    }
  }, {rootMargin: "600px"});
  for (const data of document.querySelectorAll("script[type='application/json'][id^='data-']")) {
    const name = data.id.slice("data-".length);
    const figures = JSON.parse(data.textContent);
    const plot = byId(`plot-${name}`);
    const select = document.querySelector(`select[data-chart="${name}"]`);
    const description = plot.getAttribute("aria-label");
    if (!figures.length) continue;
    const draw = () => {
      // a copy: plotly writes defaults into what it is given
      const {data: traces, layout} = themed(JSON.parse(JSON.stringify(figures[select ? Number(select.value) : 0])));
      const entries = traces.filter((trace) => trace.name && trace.showlegend !== false && layout.showlegend !== false).length;
      // on a narrow screen the legend has one entry a line
      if (plot.clientWidth < 600 && entries > 1) layout.height += 19 * entries;
      layout.modebar = layoutLook().modebar;
      Plotly.react(plot, traces, layout, settings);
      if (select) plot.setAttribute("aria-label", `${select.selectedOptions[0].text}. ${description}`);
    };
    drawn.set(plot, draw);
    if (select) select.addEventListener("change", draw);
    near.observe(plot);
  }
  const again = () => { for (const [plot, draw] of drawn) if (plot.classList.contains("js-plotly-plot")) draw(); };
  dark.addEventListener("change", again);
  addEventListener("beforeprint", () => drawn.forEach((draw) => draw()));
}
