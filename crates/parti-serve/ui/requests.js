// What operators asked for and nobody has carried out yet: what, who, when and why.

import { card, clear, h, setText } from "./dom.js";
import { age, clock, count, visible } from "./format.js";

/** More than these are only counted. */
const SHOWN = 20;
const STATES = { waiting: "waiting", under_way: "under way" };

export class RequestList {
  #model;
  #shown = "";

  constructor(model) {
    this.#model = model;
    this.found = h("span", { class: "muted", role: "status" });
    this.list = h("ol", { class: "events" });
    this.none = h("p", { class: "muted empty" }, "Nothing that was asked for is left to do.");
    const box = h(
      "div",
      { class: "scroll", tabindex: "0", "aria-labelledby": "requests-title" },
      this.none,
      this.list,
    );
    this.element = card("requests", "Requests", [this.found], box);
  }

  render(now) {
    const requests = this.#model.head.requests ?? [];
    // Ages grow, where there are any.
    const key = requests.length === 0 ? "" : `${Math.floor(now / 1000)} ${JSON.stringify(requests)}`;
    this.none.hidden = requests.length > 0;
    setText(this.found, requests.length === 0 ? "" : `${count(requests.length)} open`);
    if (key === this.#shown) return;
    this.#shown = key;
    clear(this.list).append(...requests.slice(0, SHOWN).map((request) => row(request, now)));
  }
}

function row({ text, by, why, asked_ms: asked, progress }, now) {
  const because = why === "" ? "" : `: ${visible(why)}`;
  return h(
    "li",
    {},
    h("time", { class: "muted" }, clock(asked, now)),
    h("span", { class: "kind" }, STATES[progress] ?? visible(progress)),
    h(
      "span",
      { class: "text" },
      visible(text),
      h("span", { class: "muted" }, ` — ${visible(by)}, ${age(asked, now)} ago${because}`),
    ),
  );
}
