// The panel beside the page: all that is known of one partition or worker, and what can be done.

import { PARTITION_ACTIONS, WORKER_ACTIONS } from "./actions.js";
import { metadataText } from "./consumers.js";
import { button, clear, h, name, setText, tag } from "./dom.js";
import { age, clock, count, visible, words } from "./format.js";
import { endOf, healthOf, nextOwner, statusOf } from "./model.js";

export class Inspector {
  #model;
  #palette;
  #beats;
  #consumers;
  #hooks;
  #shown = null;
  #values = [];
  #buttons = [];
  #before = null;

  constructor(model, palette, beats, consumers, hooks) {
    this.#model = model;
    this.#palette = palette;
    this.#beats = beats;
    this.#consumers = consumers;
    this.#hooks = hooks;
    this.title = h("h2", { id: "inspector-title", tabindex: "-1" });
    const close = button("×", () => this.close(), { class: "plain", "aria-label": "Close" });
    this.list = h("dl");
    this.actions = h("div", { class: "actions" });
    this.element = h(
      "aside",
      { class: "inspector", "aria-labelledby": "inspector-title", hidden: true },
      h("header", { class: "card-top" }, this.title, close),
      this.actions,
      this.list,
    );
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
  }

  show(kind, id, now) {
    if (this.#shown === null) this.#before = document.activeElement;
    this.#shown = { kind, id };
    this.element.hidden = false;
    document.body.classList.add("inspecting");
    const { lines, actions } = kind === "worker" ? this.#worker(id) : this.#partition(id);
    clear(this.title).append(...lines.title);
    clear(this.list);
    this.#values = lines.rows.map(([label, read]) => {
      const value = h("dd");
      this.list.append(h("div", {}, h("dt", {}, label), value));
      return [value, read];
    });
    clear(this.actions);
    this.#buttons = actions.map(([label, offered, run, grave]) => {
      const element = button(label, run, { class: `small operate${grave ? " grave" : ""}` });
      this.actions.append(element);
      return [element, offered];
    });
    this.render(now);
    this.title.focus({ preventScroll: true });
    this.element.scrollTop = 0;
    this.#hooks.chosen(kind, id);
  }

  close() {
    if (this.#shown === null) return;
    this.#shown = null;
    this.element.hidden = true;
    document.body.classList.remove("inspecting");
    this.#hooks.chosen(null, null);
    if (this.#before?.isConnected) this.#before.focus({ preventScroll: true });
  }

  /** Brings it up to date. */
  render(now) {
    if (this.#shown === null) return;
    const { kind, id } = this.#shown;
    const subject = kind === "worker" ? this.#model.workers.get(id) : this.#model.partition(id);
    for (const [element, read] of this.#values) {
      const value = subject ? read(subject, now) : "gone";
      setText(element, value);
      element.parentElement.hidden = value === "";
    }
    const focused = document.activeElement;
    for (const [element, offered] of this.#buttons) element.hidden = !subject || !offered(subject);
    // What was done is not offered any more: whoever did it by keyboard stays here.
    if (focused?.hidden && this.actions.contains(focused)) this.title.focus({ preventScroll: true });
  }

  #worker(id) {
    const context = { worker: id, model: this.#model };
    const actions = Object.values(WORKER_ACTIONS).map((action) => [
      `${action.verb}…`,
      action.offered,
      () => this.#hooks.act(action, id, context),
      action.grave,
    ]);
    const blocked = ({ blocked_by: by }) =>
      by
        .map(({ partition, owner }) => `${visible(partition)} held by ${visible(owner)}`)
        .join(", ");
    const rows = [
      ["Consumer", (worker) => visible(this.#consumers.of(worker)?.consumer ?? "")],
      ["Metadata", (worker) => visible(metadataText(this.#consumers.of(worker)?.metadata))],
      ["Health", (worker) => healthOf(worker, this.#beats).word],
      ["Trouble", ({ degraded }) => visible(degraded ?? "")],
      ["Session", ({ status }) => words(status)],
      ["Leads", ({ leader }) => (leader ? "yes" : "no")],
      [
        "Heartbeat",
        (worker, now) => `${age(worker.renewed_ms, now)} ago · beat ${count(worker.beat)}`,
      ],
      ["Owns", ({ partitions }) => count(partitions)],
      ["Told to serve", ({ serve }) => (serve === null ? "nobody told it" : count(serve))],
      ["Getting ready for", ({ prepare }) => count(prepare)],
      ["Refused by", blocked],
      ["Incarnation", ({ incarnation }) => String(incarnation)],
      ["Applied version", ({ applied }) => String(applied)],
    ];
    return { lines: { title: ["Worker ", tag(this.#palette, id), " ", name(id)], rows }, actions };
  }

  #partition(id) {
    const context = { partition: id, model: this.#model };
    const actions = Object.values(PARTITION_ACTIONS).map((action) => [
      `${action.verb}…`,
      action.offered,
      () => this.#hooks.act(action, `partition ${visible(id)}`, context),
      action.grave,
    ]);
    actions.push(["Reset checkpoint…", () => true, () => this.#hooks.reset([id]), true]);
    const rows = [
      ["Status", (partition) => statusOf(partition)],
      ["Why nobody serves it", ({ unserved }) => visible(unserved ?? "")],
      ["Owner", (partition) => ownerOf(partition)],
      ["Next owner", (partition) => visible(nextOwner(partition) ?? "")],
      ["Pinned to", ({ pinned_to: pinned }) => visible(pinned ?? "")],
      ["Lag", ({ lag }) => count(lag)],
      ["Last done offset", ({ offset }) => count(offset)],
      ["Goes on at", ({ next_offset: next }) => count(next)],
      ["Done above it", ({ done_above: done }) => (done?.length ? count(done.length) : "")],
      [
        "Begun in suspicion",
        ({ begun }) => (begun ? `${count(begun.offset)}, ${begun.times} times` : ""),
      ],
      ["Oldest message", ({ first }) => count(first)],
      ["End", (partition) => count(endOf(partition))],
      ["Epoch", ({ epoch }) => count(epoch)],
      [
        "Taken",
        ({ claimed_ms: at }, now) => (at ? `${clock(at, now)} · ${age(at, now)} ago` : "never"),
      ],
      [
        "Checkpoint written",
        ({ updated_ms: at }, now) => (at ? `${clock(at, now)} · ${age(at, now)} ago` : "never"),
      ],
    ];
    return { lines: { title: ["Partition ", name(id)], rows }, actions };
  }
}

function ownerOf({ owner, incarnation, owner_session: session }) {
  if (owner === null) return "nobody";
  const over = session === "over" ? ", session over" : session === "leaving" ? ", leaving" : "";
  return `${visible(owner)} (life ${incarnation}${over})`;
}
