// Handoffs under way, step by step, and the rebalances that they belong to.

import { card, clear, h, name, setText, tag } from "./dom.js";
import { clock, count, duration, plural, visible, words } from "./format.js";

const STAGES = ["preparing", "ready", "releasing", "taking"];
/** More rows than this are only counted: nobody reads them as they fly by. */
const SHOWN = 6;
const REBALANCES_SHOWN = 30;

export class Handoffs {
  #watch;
  #palette;
  #rows = new Map();

  constructor(watch, palette) {
    this.#watch = watch;
    this.#palette = palette;
    this.counts = h("span", { class: "muted", role: "status" });
    this.list = h("ol", { class: "handoffs" });
    this.recent = h("ul", { class: "handoffs", "aria-label": "Handoffs that ended last" });
    this.none = h("p", { class: "muted empty" }, "Nothing has moved since this page was opened.");
    const box = h("div", { class: "handoff-box" }, this.none, this.list, this.recent);
    this.element = card("handoffs", "Handoffs", [this.counts], box);
  }

  render(now, changed) {
    const under = [...this.#watch.under.values()];
    const shown = under.slice(0, SHOWN);
    const keep = new Set();
    for (const handoff of shown) {
      const key = `${handoff.partition}\n${handoff.to}`;
      keep.add(key);
      let row = this.#rows.get(key);
      if (!row) {
        row = new HandoffRow(handoff, this.#palette);
        this.#rows.set(key, row);
        this.list.append(row.element);
      }
      row.show(handoff, now);
    }
    for (const [key, row] of this.#rows) {
      if (keep.has(key)) continue;
      row.element.remove();
      this.#rows.delete(key);
    }
    const by = STAGES.map((stage) => under.filter((handoff) => handoff.stage === stage).length);
    const parts = STAGES.map((stage, at) => `${count(by[at])} ${stage}`);
    const told = under.length === 0 ? "nothing is moving" : parts.join(" · ");
    setText(this.counts, this.#watch.blind ? "not known now" : told);
    if (changed) this.#renderRecent(SHOWN - shown.length);
    this.none.hidden = under.length > 0 || this.#watch.finished.length > 0;
  }

  /** Fills the rest of the rows with what ended last. */
  #renderRecent(room) {
    const last = room > 0 ? this.#watch.finished.slice(-room).reverse() : [];
    clear(this.recent);
    for (const { partition, from, to, took, whole, outcome } of last) {
      const length = took === null ? "within one update" : lengthOf(took, whole);
      const end = outcome === "done" ? `✓ taken ${length}` : `withdrawn ${length}`;
      const ended = h("span", { class: "muted" }, end);
      this.recent.append(h("li", {}, name(partition), routeOf(this.#palette, from, to), ended));
    }
  }
}

/** What was under way before it was seen took longer than it was seen for. */
const lengthOf = (took, whole) => (whole ? `in ${duration(took)}` : `in over ${duration(took)}`);

function routeOf(palette, from, to) {
  const origin = from === null ? h("span", { class: "muted" }, "free") : tag(palette, from);
  const names = `from ${from === null ? "nobody" : visible(from)} to ${visible(to)}`;
  const spoken = h("span", { class: "hush" }, names);
  return h("span", { class: "route", title: names }, origin, " → ", tag(palette, to), spoken);
}

class HandoffRow {
  constructor({ partition, from, to }, palette) {
    this.steps = STAGES.map((stage) => h("li", {}, stage));
    this.since = h("span", { class: "muted number" });
    const steps = h("ol", { class: "steps" }, ...this.steps);
    this.element = h("li", {}, name(partition), routeOf(palette, from, to), steps, this.since);
  }

  show({ stage, begun, whole }, now) {
    const at = STAGES.indexOf(stage);
    this.steps.forEach((element, place) => {
      const state = place < at ? "past" : place === at ? "now" : "next";
      if (element.className !== state) {
        element.className = state;
        if (state === "now") element.setAttribute("aria-current", "step");
        else element.removeAttribute("aria-current");
      }
    });
    const length = duration(Math.max(0, Math.floor((now - begun) / 100) * 100));
    setText(this.since, whole ? length : `> ${length}`);
  }
}

export class RebalanceList {
  #rebalances;
  #shown = "";

  constructor(rebalances) {
    this.#rebalances = rebalances;
    this.list = h("ol", { class: "timeline" });
    this.none = h("p", { class: "muted empty" }, "No rebalance yet.");
    this.element = card(
      "rebalances",
      "Rebalances",
      [],
      this.none,
      h(
        "div",
        { class: "scroll", tabindex: "0", "aria-labelledby": "rebalances-title" },
        this.list,
      ),
    );
  }

  render(now) {
    const all = this.#rebalances.list;
    const shown = all.slice(-REBALANCES_SHOWN).reverse();
    const tick = shown[0]?.end === null ? Math.floor(now / 500) : 0;
    const key = `${all.length} ${tick} ${JSON.stringify(shown[0] ?? null)}`;
    if (key === this.#shown) return;
    this.#shown = key;
    this.none.hidden = shown.length > 0;
    const longest = Math.max(1, ...shown.map(({ start, end }) => (end ?? now) - start));
    clear(this.list);
    for (const rebalance of shown) this.list.append(row(rebalance, longest, now));
  }
}

function row({ start, end, state, reason, placed, moves }, longest, now) {
  const took = Math.max(0, (end ?? now) - start);
  const bar = h("i");
  bar.style.width = `${Math.max(1.5, (took / longest) * 100).toFixed(1)}%`;
  const counts = [];
  if (placed > 0) counts.push(`${count(placed)} placed`);
  if (moves > 0) counts.push(`${plural(moves, "move")}`);
  const length = end === null ? `${duration(took)} so far` : duration(took);
  return h(
    "li",
    { class: end === null ? "open" : null },
    h("time", { class: "muted" }, clock(start, now)),
    h("span", { class: `kind ${state}` }, words(state)),
    h("span", { class: "number length" }, length),
    h(
      "span",
      { class: "reason" },
      visible(reason),
      h("span", { class: "muted" }, counts.length > 0 ? ` — ${counts.join(", ")}` : ""),
    ),
    h("span", { class: `bar ${state}`, "aria-hidden": "true" }, bar),
  );
}
