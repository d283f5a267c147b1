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
