// The overview: every group of the store, looked at every two seconds.

import { card, clear, h, name, setText } from "./dom.js";
import { compact, count, visible, words } from "./format.js";

const EVERY_MS = 2000;
/** A server that does not answer for so long is frozen, or out of reach. */
const SILENCE_MS = 8000;

export class Overview {
  #api;
  #timer = null;
  #closed = false;
  #shown = "";

  constructor(api, { onState }) {
    this.#api = api;
    this.onState = onState;
    this.found = h("span", { class: "muted" });
    this.body = h("tbody");
    this.none = h("p", { class: "muted empty", hidden: true }, "This store holds no group yet.");
    const heads = ["Group", "Leader", "Workers", "Partitions", "Served", "Moving", "Paused", "Lag"];
    const cells = heads.map((title, at) =>
      h("th", { scope: "col", class: at < 2 ? "" : at === 4 ? "load" : "number" }, title),
    );
    const table = h(
      "table",
      { class: "grid roomy" },
      h("thead", {}, h("tr", {}, ...cells)),
      this.body,
    );
    const box = h("div", { class: "table-box", tabindex: "-1" }, table);
    const heading = h("h1", { class: "hush" }, "Groups");
    this.element = h("div", {}, heading, card("groups", "Groups", [this.found], box, this.none));
    this.#look();
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  /** Its requests are short: they stand in nobody's way. */
  rest() {}

  wake() {}

  retry() {
    if (this.#timer === null) return;
    clearTimeout(this.#timer);
    this.#look();
  }

  async #look() {
    this.#timer = null;
    try {
      const { groups } = await this.#api.get("/v1/groups", SILENCE_MS);
      if (this.#closed) return;
      this.onState({ name: "live" });
      this.#show(groups);
    } catch (error) {
      if (this.#closed) return;
      if (error.status === 401 || error.status === 403) {
        this.onState({ name: "refused", error });
        return;
      }
      const silent = error.name === "TimeoutError";
      const lost = silent ? "the server does not answer" : "the server cannot be reached";
      const why = error.status ? error.message : lost;
      this.onState({ name: "waiting", why, until: Date.now() + EVERY_MS, tries: 1 });
    }
    this.#timer = setTimeout(() => this.#look(), EVERY_MS);
  }

  #show(groups) {
    const key = JSON.stringify(groups);
    if (key === this.#shown) return;
    this.#shown = key;
    const focused = document.activeElement?.closest("tr")?.dataset.group;
    setText(this.found, count(groups.length));
    this.none.hidden = groups.length > 0;
    clear(this.body).append(...groups.map(row));
    if (focused === undefined) return;
    const again = [...this.body.rows].find(({ dataset }) => dataset.group === focused);
    again?.querySelector("a").focus();
  }
}

function row(group) {
  const number = (text) => h("td", { class: "number" }, text);
  const link = h("a", { href: `#/groups/${encodeURIComponent(group.group)}` }, name(group.group));
  const kind = group.coordination === "leader" ? "" : words(group.coordination);
  const closed = group.closed ? "being deleted" : kind;
  return h(
    "tr",
    { "data-group": group.group },
    h("th", { scope: "row" }, link, closed === "" ? null : h("span", { class: "role" }, closed)),
    h(
      "td",
      {},
      group.leader === null ? h("span", { class: "muted" }, "nobody") : visible(group.leader),
    ),
    number(count(group.workers)),
    number(count(group.partitions)),
    h("td", { class: "load" }, ...served(group)),
    number(count(group.moving)),
    number(count(group.paused)),
    number(compact(group.lag)),
  );
}

function served({ owned, partitions, paused }) {
  const part = partitions === 0 ? 0 : owned / partitions;
  // What an operator paused is not missing.
  const fill = h("i", { class: owned + paused < partitions ? "short" : "" });
  fill.style.width = `${(part * 100).toFixed(1)}%`;
  const text = partitions === 0 ? "–" : part === 1 ? "all" : count(owned);
  return [h("span", {}, text), h("span", { class: "bar", "aria-hidden": "true" }, fill)];
}
