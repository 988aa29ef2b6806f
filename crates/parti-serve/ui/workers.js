// The table of workers: who is there, how fresh its heartbeat is, what it carries.

import { card, h, name, setAttr, setText, tag } from "./dom.js";
import { age, compact, count, visible } from "./format.js";
import { rowsIn } from "./layout.js";
import { healthOf, isThere } from "./model.js";

const ROW = 30;
/** So many rows that are out of view are brought up to date each time, in turn. */
const OUT_OF_VIEW = 8;
/** So many rows are made in a frame: the browser has to lay them out, too. */
const NEW_AT_ONCE = 16;

export class WorkerTable {
  #model;
  #palette;
  #beats;
  #consumers;
  #select;
  #rows = new Map();
  #chosen = null;
  #seen = { top: 0, height: 420 }; // what is in view, read when it changes
  #turn = 0;
  #wake;

  constructor(model, palette, beats, consumers, { select, wake }) {
    this.#model = model;
    this.#palette = palette;
    this.#beats = beats;
    this.#consumers = consumers;
    this.#select = select;
    this.#wake = wake;
    this.found = h("span", { class: "muted" });
    this.body = h("tbody");
    const head = (title, number, hush) =>
      h("th", { scope: "col", class: number ? "number" : "", title: hush ?? null }, title);
    const heads = [
      head("Worker"),
      head("State"),
      head("Heartbeat", true, "How long ago it renewed its session, by its own clock"),
      h("th", { scope: "col", class: "load" }, "Partitions"),
      head("Lag", true),
      head("Offsets/s", true),
    ];
    const table = h(
      "table",
      { class: "grid", "aria-label": "Workers" },
      h("thead", {}, h("tr", {}, ...heads)),
      this.body,
    );
    const box = h("div", { class: "table-box", tabindex: "-1" }, table);
    const looked = () => {
      this.#seen = { top: box.scrollTop, height: box.clientHeight };
      wake();
    };
    box.addEventListener("scroll", looked, { passive: true });
    const size = new ResizeObserver(looked);
    size.observe(box);
    this.close = () => size.disconnect();
    this.element = card("workers", "Workers", [this.found], box);
  }

  choose(id) {
    this.#chosen = id;
  }

  /** Brings the rows up to date. `sums` are the totals by owner, `rates` the offsets a second. */
  render(sums, rates, now) {
    const { workers } = this.#model;
    for (const [id, row] of this.#rows) {
      if (workers.has(id)) continue;
      row.element.remove();
      this.#rows.delete(id);
    }
    const most = Math.max(1, ...[...sums.values()].map(({ partitions }) => partitions));
    const [from, to] = rowsIn(this.#seen.top, this.#seen.height, ROW, workers.size);
    const turn = Math.max(1, Math.ceil(workers.size / OUT_OF_VIEW));
    this.#turn = (this.#turn + 1) % turn;
    let [before, there, at, made] = [null, 0, -1, 0];
    for (const [id, worker] of workers) {
      at += 1;
      if (isThere(worker)) there += 1;
      let row = this.#rows.get(id);
      const isNew = row === undefined;
      if (isNew) {
        made += 1;
        if (made > NEW_AT_ONCE) continue;
        row = new Row(id, this.#palette, () => this.#select(id));
        this.#rows.set(id, row);
      }
      const place = before === null ? this.body.firstChild : before.nextSibling;
      if (row.element !== place) this.body.insertBefore(row.element, place);
      before = row.element;
      if (isNew || (at >= from && at < to) || at % turn === this.#turn) {
        const health = healthOf(worker, this.#beats);
        row.show(worker, health, sums.get(id), most, rates.get(id), now);
        row.showConsumer(this.#consumers.of(worker)?.consumer ?? "");
        setAttr(row.element, "aria-selected", id === this.#chosen ? "true" : null);
      }
    }
    if (made > NEW_AT_ONCE) this.#wake();
    const all = workers.size;
    setText(this.found, there === all ? count(all) : `${count(there)} live of ${count(all)}`);
  }
}

class Row {
  constructor(id, palette, open) {
    const text = visible(id);
    const label = { type: "button", class: "link", title: text, on: { click: open } };
    this.role = h("span", { class: "role" });
    this.consumer = h("bdi", { class: "consumer muted" });
    const opener = h("button", label, tag(palette, id), " ", name(id, { title: null }));
    this.state = h("td");
    this.beat = h("td", { class: "number" });
    this.bar = h("i");
    this.load = h("span");
    const bar = h("span", { class: "bar", "aria-hidden": "true" }, this.bar);
    this.lag = h("td", { class: "number" });
    this.rate = h("td", { class: "number" });
    setAttr(this.bar, "class", `c${palette.look(id).slot}`);
    this.element = h(
      "tr",
      {},
      h("th", { scope: "row" }, opener, this.role, this.consumer),
      this.state,
      this.beat,
      h("td", { class: "load" }, this.load, bar),
      this.lag,
      this.rate,
    );
  }

  /** Who is behind it, if that is known here. */
  showConsumer(consumer) {
    const text = visible(consumer);
    setText(this.consumer, text);
    setAttr(this.consumer, "title", text === "" ? null : `consumer ${text}`);
    this.consumer.hidden = text === "";
  }

  show(worker, { word, good }, sum, most, rate, now) {
    setText(this.role, worker.leader ? "leader" : "");
    this.role.hidden = !worker.leader;
    setText(this.state, good ? word : `! ${word}`);
    setAttr(this.state, "class", good ? "" : "bad");
    setAttr(this.state, "title", worker.degraded ? visible(worker.degraded) : null);
    setText(this.beat, age(worker.renewed_ms, now));
    const owns = sum?.partitions ?? 0;
    const coming = worker.prepare > 0 ? ` +${worker.prepare}` : "";
    setText(this.load, `${count(owns)}${coming}`);
    const width = `${((owns / most) * 100).toFixed(1)}%`;
    if (this.bar.style.width !== width) this.bar.style.width = width;
    setText(this.lag, compact(sum?.lag ?? null));
    setText(this.rate, compact(rate ?? null));
  }
}
