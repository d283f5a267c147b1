// Values under the pointer: every mark carries its own as a title. Without this script browsers show them, later.
(() => {
  "use strict";
  const words = new Map();
  for (const title of document.querySelectorAll("svg title")) {
    const mark = title.parentElement;
    // A drawing's own title is its name, which its label says already.
    if (mark.tagName !== "svg") words.set(mark, title.textContent);
    title.remove();
  }

  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  const hide = () => { tip.hidden = true; };
  const show = (event) => {
    let mark = event.target;
    while (mark instanceof Element && !words.has(mark)) mark = mark.parentElement;
    if (!(mark instanceof Element)) return hide();
    tip.textContent = words.get(mark);
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const room = document.documentElement.clientWidth;
    const left = Math.max(8, Math.min(event.clientX - width / 2, room - width - 8));
    const above = event.clientY - height - 14;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 8 ? above : event.clientY + 18}px`;
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("scroll", hide, { passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // Drawings with more in them than a screen shows: by wheel, keys and dragging, after a click.
  for (const svg of document.querySelectorAll(".zoom figure > svg")) {
    const { width, height } = svg.viewBox.baseVal;
    let [x, y, factor, drag] = [0, 0, 1, null];
    const clamp = (value, high) => Math.max(0, Math.min(value, high));
    const set = (left, top, next) => {
      factor = Math.max(1, Math.min(next, 400));
      x = clamp(left, width - width / factor);
      y = clamp(top, height - height / factor);
      svg.setAttribute("viewBox", `${x} ${y} ${width / factor} ${height / factor}`);
    };
    // The place at these shares of the drawing stays where it is.
    const zoom = (by, across, down) => {
      const next = Math.max(1, Math.min(factor * by, 400));
      set(x + across * (width / factor - width / next), y + down * (height / factor - height / next), next);
    };
    const shares = (event) => {
      const box = svg.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    };
    svg.tabIndex = 0;
    svg.addEventListener("wheel", (event) => {
      if (document.activeElement !== svg) return;
      event.preventDefault();
      zoom(event.deltaY < 0 ? 1.25 : 0.8, ...shares(event));
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => { drag = [...shares(event), x, y]; });
    svg.addEventListener("pointermove", (event) => {
      if (!drag || !event.buttons) return;
      const [across, down] = shares(event);
      set(drag[2] + (drag[0] - across) * width / factor, drag[3] + (drag[1] - down) * height / factor, factor);
    });
    svg.addEventListener("pointerup", () => { drag = null; });
    svg.addEventListener("keydown", (event) => {
      const step = 0.2 * width / factor;
      const keys = {
        "+": () => zoom(1.5, 0.5, 0.5), "-": () => zoom(1 / 1.5, 0.5, 0.5), Escape: () => set(0, 0, 1),
        ArrowLeft: () => set(x - step, y, factor), ArrowRight: () => set(x + step, y, factor),
        ArrowUp: () => set(x, y - step / 4, factor), ArrowDown: () => set(x, y + step / 4, factor),
      };
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  // A phone has no room for tables below charts: they open by a touch.
  if (matchMedia("(max-width: 640px)").matches) {
    for (const details of document.querySelectorAll("details.table")) details.open = false;
  }

  // Paper has no key to open a short table or a list with; long tables are printed where they were opened.
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details.short, details.findings, details.reading")) details.open = true;
  });
  document.documentElement.dataset.ready = String(words.size);
})();
