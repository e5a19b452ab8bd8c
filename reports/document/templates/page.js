"use strict";
// Everything here is a convenience: the page reads the same without it.
(() => {
  const root = document.documentElement;
  const said = document.getElementById("said");
  const say = (words) => { said.textContent = ""; said.textContent = words; };

  // Theme: the system's, until the reader chooses.
  const button = document.getElementById("theme");
  if (button) {
    const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    const label = () => {
      button.textContent = dark() ? "Light" : "Dark";
      button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
    };
    try { const kept = localStorage.getItem("fedassay-theme"); if (kept) root.dataset.theme = kept; } catch { /* storage is off */ }
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("fedassay-theme", root.dataset.theme); } catch { /* storage is off */ }
      label();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
    button.hidden = false;
    label();
  }

  // Tables sort by whole groups of rows, so that a baseline stays under its measurement.
  const compare = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const x = a === "inf" ? Infinity : Number(a), y = b === "inf" ? Infinity : Number(b);
    if (!Number.isNaN(x) && !Number.isNaN(y)) return x === y ? 0 : x < y ? -1 : 1;
    return a.localeCompare(b, undefined, { numeric: true });
  };
  for (const table of document.querySelectorAll(".table:not(.mission) table")) {
    const heads = [...table.tHead.rows[0].cells];
    // A table's head is one stop of the Tab key; the arrows go from column to column.
    const stop = (index) => heads.forEach((each, at) => { each.firstElementChild.tabIndex = at === index ? 0 : -1; });
    heads.forEach((head, index) => {
      const sort = document.createElement("button");
      sort.type = "button";
      sort.className = "sort";
      sort.textContent = head.textContent;
      sort.setAttribute("aria-describedby", "along");
      head.replaceChildren(sort);
      sort.addEventListener("focus", () => stop(index));
      sort.addEventListener("keydown", (event) => {
        const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: heads.length - 1 }[event.key];
        if (!heads[to]) return;
        event.preventDefault();
        heads[to].firstElementChild.focus();
      });
      sort.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (body) => body.rows[0].cells[index].dataset.sort || "";
        const bodies = [...table.tBodies];
        bodies.sort((a, b) => {
          const x = key(a), y = key(b);
          // What was not measured stays last in either direction.
          return x === "" || y === "" || !down ? compare(x, y) : compare(y, x);
        });
        for (const body of bodies) table.append(body);
        say(`Sorted by ${sort.textContent}, ${down ? "descending" : "ascending"}`);
      });
    });
    stop(0);
  }

  // A table that is wider than its place says what lies beyond, and only such a one is a stop by itself.
  const beyond = (box) => {
    const { left, right } = box.getBoundingClientRect();
    const wide = box.scrollWidth > box.clientWidth + 1;
    if (wide) box.tabIndex = 0; else box.removeAttribute("tabindex");
    box.classList.toggle("goes-on", wide && box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
    const heads = [...box.querySelectorAll("th")].map((head) => head.getBoundingClientRect());
    const after = heads.filter((head) => head.right > right + 1).length;
    const words = after ? `${after} of ${heads.length} columns go on to the right \u2192` : "\u2190 columns go on to the left";
    const sign = box.previousElementSibling;
    sign.hidden = !wide || !left && !right;
    sign.textContent = sign.hidden ? "" : words;
  };
  if ("ResizeObserver" in window) {
    const watcher = new ResizeObserver((entries) => { for (const entry of entries) beyond(entry.target); });
    for (const box of document.querySelectorAll(".box")) {
      const sign = document.createElement("p");
      sign.className = "beyond";
      sign.hidden = true;
      box.before(sign);
      box.addEventListener("scroll", () => beyond(box), { passive: true });
      watcher.observe(box);
    }
  }

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  const offer = (control, text) => {
    const words = control.textContent;
    control.hidden = false;
    control.addEventListener("click", async () => {
      await copy(text());
      control.textContent = "Copied";
      say("Copied");
      setTimeout(() => { control.textContent = words; }, 1500);
    });
  };
  for (const control of document.querySelectorAll("button.copy")) {
    const table = control.closest(".table").querySelector("table");
    const clean = (cell) => {
      const copied = cell.cloneNode(true);
      for (const mark of copied.querySelectorAll("sup")) mark.remove();
      return copied.textContent.replace(/\s+/g, " ").trim();
    };
    offer(control, () => [...table.rows].map((row) => [...row.cells].map(clean).join("\t")).join("\n"));
  }
  for (const control of document.querySelectorAll("button.copy-code")) {
    offer(control, () => control.parentElement.querySelector("pre").textContent);
  }

  // The navigation marks the section in view.
  const links = new Map([...document.querySelectorAll("nav.sections a")].map((link) => [link.hash.slice(1), link]));
  if (links.size && "IntersectionObserver" in window) {
    const watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(entry.target.id)?.setAttribute("aria-current", "true");
      }
    }, { rootMargin: "-15% 0px -75% 0px" });
    for (const id of links.keys()) { const part = document.getElementById(id); if (part) watcher.observe(part); }
  }

  // Paper gets what is open, and a line for every fold that is not; the key to the verdicts belongs to a signed copy.
  addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details.key")) fold.open = true;
  });
})();
