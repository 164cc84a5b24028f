// Puts the page together.

function markSections() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.getAttribute("href").slice(1), link]));
  const sections = [...document.querySelectorAll("main > section")];
  const mark = () => {
    const line = innerHeight * 0.3;
    const reached = sections.filter((section) => section.getBoundingClientRect().top <= line).pop() ?? sections[0];
    const end = innerHeight + scrollY >= document.documentElement.scrollHeight - 4 ? sections.at(-1) : reached;
    for (const [id, link] of links) {
      const here = id === end.id;
      if (here === link.hasAttribute("aria-current")) continue;
      if (!here) { link.removeAttribute("aria-current"); continue; }
      link.setAttribute("aria-current", "true");
      const list = link.closest("ul");
      if (list.scrollWidth > list.clientWidth) list.scrollLeft = link.offsetLeft - list.clientWidth / 2 + link.offsetWidth / 2;
    }
  };
  let waiting = false;
  addEventListener("scroll", () => {
    if (!waiting) requestAnimationFrame(() => { waiting = false; mark(); });
    waiting = true;
  }, {passive: true});
  mark();
}

function chooseWrong() {
  const select = byId("wrong-choice");
  if (!select) return;
  const show = () => { for (const block of document.querySelectorAll("[data-wrong]")) block.hidden = block.dataset.wrong !== select.value; };
  select.addEventListener("change", show);
  show();
}

async function start() {
  markSections();
  drawCharts();
  chooseWrong();
  try {
    programs = await unpack(byId("programs").textContent);
  } catch (error) {
    for (const id of ["parity", "explorer-plot", "workload-table"]) byId(id)?.replaceChildren(element("p", {class: "missing"}, `The programs cannot be read: ${error.message}. A browser from 2023 or later can.`));
    return;
  }
  const base = programColumns(programs);
  workloadTable(programs);
  parityPlot(programs, base);
  explorerPlot(programs, base);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-row]");
    if (button) pinProgram(Number(button.dataset.row), true);
  });
  document.documentElement.dataset.ready = "true";
}

start();
