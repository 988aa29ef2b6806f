// The event log: the newest first, older ones on request.

import { button, card, h, notify, setAttr, setText } from "./dom.js";
import { clock, count, visible } from "./format.js";

const KINDS = [
  "join",
  "leave",
  "crash",
  "election",
  "plan",
  "handoff",
  "fencing",
  "request",
  "trouble",
];
const GRAVE = new Set(["crash", "fencing", "trouble"]);
/** So many are shown at first; asking for older ones shows so many more. */
const PAGE = 100;

export class EventLog {
  #model;
  #fetchOlder;
  #kind = "";
  #limit = PAGE;
  #newest = -Infinity;
  #oldest = Infinity;
  #stale = true;
  #busy = false;
  #version = -1;

  constructor(model, hooks) {
    this.#model = model;
    this.#fetchOlder = hooks.older;
    const kind = h(
      "select",
      {
        "aria-label": "Show events of this kind",
        on: {
          change: () => {
            this.#kind = kind.value;
            this.#stale = true;
            hooks.wake();
          },
        },
      },
      h("option", { value: "" }, "Every kind"),
      ...KINDS.map((value) => h("option", { value }, value)),
    );
    this.found = h("span", { class: "muted" });
    this.list = h("ol", { class: "events" });
    this.none = h("p", { class: "muted empty" }, "No event yet.");
    this.more = button("Older events", () => this.#older(hooks.wake), { class: "small" });
    this.box = h(
      "div",
      { class: "scroll", tabindex: "0", "aria-labelledby": "events-title" },
      this.none,
      this.list,
      this.more,
    );
    this.element = card("events", "Events", [this.found, h("div", { class: "tools" }, kind)], this.box);
  }

  async #older(wake) {
    if (this.#busy) return;
    this.#limit += PAGE;
    this.#stale = true;
    if (this.#limit > this.#model.events.length) {
      this.#wait(true);
      try {
        const more = await this.#fetchOlder(this.#model.events[0]?.n ?? null);
        if (!more) this.#end();
      } catch (error) {
        notify(error.message, "failed");
      }
      this.#wait(false);
    }
    wake();
  }

  /** A button that is disabled loses the focus: this one only says so. */
  #wait(busy) {
    this.#busy = busy;
    setAttr(this.more, "aria-disabled", busy ? "true" : null);
  }

  /** There are no older ones. Whoever asked by keyboard stays in the list. */
  #end() {
    if (document.activeElement === this.more) this.box.focus({ preventScroll: true });
    this.more.hidden = true;
  }

  render(now) {
    const { events, version } = this.#model;
    if (version.events === this.#version && !this.#stale) return;
    this.#version = version.events;
    const wanted = this.#kind === "" ? events : events.filter(({ kind }) => kind === this.#kind);
    const shown = wanted.slice(-this.#limit);
    const first = shown[0]?.n ?? Infinity;
    if (this.#stale || first < this.#oldest) {
      this.list.replaceChildren();
      this.#newest = -Infinity;
      this.#stale = false;
    }
    this.#oldest = first;
    const news = shown.filter(({ n }) => n > this.#newest);
    this.list.prepend(...news.reverse().map((event) => row(event, now)));
    while (this.list.childElementCount > shown.length) this.list.lastElementChild.remove();
    this.#newest = shown.at(-1)?.n ?? this.#newest;
    this.none.hidden = shown.length > 0;
    setText(this.found, this.#kind === "" ? "" : count(wanted.length));
  }
}

function row({ at_ms: at, kind, worker, text }, now) {
  const grave = GRAVE.has(kind);
  return h(
    "li",
    {},
    h("time", { class: "muted" }, clock(at, now)),
    h("span", { class: grave ? "kind bad" : "kind" }, grave ? `! ${kind}` : kind),
    h(
      "span",
      { class: "text", title: worker ? `told by ${visible(worker)}` : null },
      visible(text),
    ),
  );
}
