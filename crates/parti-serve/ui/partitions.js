// The table of partitions: what the map shows, for eyes, keyboards and screen readers.
//
// Rows have one height, and only those in view exist. The order is made anew once a second at most,
// so that rows do not run away from under the pointer.

import { button, card, clear, h, name, setAttr, setText, tag } from "./dom.js";
import { age, count, visible } from "./format.js";
import { rowsIn } from "./layout.js";
import { STATUSES, arrange, endOf, nextOwner, statusOf } from "./model.js";

const ROW = 30;
/** The least height of the table, if it has rows enough. */
const HEIGHT = 480;
const ORDER_MS = 1000;

const COLUMNS = [
  { key: "partition", title: "Partition" },
  { key: "owner", title: "Owner" },
  { key: "status", title: "Status" },
  { key: "lag", title: "Lag", number: true },
  { key: "next_offset", title: "Next offset", number: true },
  { key: "end", title: "End", number: true },
  { key: "epoch", title: "Epoch", number: true },
  { key: "updated_ms", title: "Checkpoint age", number: true },
];

export class PartitionTable {
  #model;
  #palette;
  #hooks;
  #view = { key: "partition", down: false, text: "", status: "" };
  #shown = [];
  #ordered = -Infinity;
  #structure = -1;
  #rows = [];
  #focus = 0;
  #chosen = null;
  #now = 0;
  #seen = { top: 0, height: HEIGHT }; // what is in view, read when it changes

  constructor(model, palette, hooks) {
    this.#model = model;
    this.#palette = palette;
    this.#hooks = hooks;
    const filter = h("input", {
      type: "search",
      placeholder: "Filter by id or owner",
      "aria-label": "Filter partitions by id or owner",
      on: { input: () => this.#change({ text: filter.value }) },
    });
    const status = h(
      "select",
      {
        "aria-label": "Filter partitions by status",
        on: { change: () => this.#change({ status: status.value }) },
      },
      h("option", { value: "" }, "Every status"),
      ...STATUSES.map((value) => h("option", { value }, value)),
    );
    this.found = h("span", { class: "muted", role: "status" });
    this.reset = button("Reset checkpoints…", () => hooks.reset(this.#ids()), {
      class: "small operate",
    });
    this.above = h("tr", { class: "space", "aria-hidden": "true" }, h("td", { colspan: "8" }));
    this.below = h("tr", { class: "space", "aria-hidden": "true" }, h("td", { colspan: "8" }));
    this.body = h("tbody", {}, this.above, this.below);
    this.heads = new Map();
    this.table = h("table", { class: "grid", "aria-label": "Partitions" }, this.#head(), this.body);
    this.box = h("div", { class: "table-box", tabindex: "-1" }, this.table);
    const looked = () => {
      this.#seen = { top: this.box.scrollTop, height: this.box.clientHeight };
      hooks.wake();
    };
    this.box.addEventListener("scroll", looked, { passive: true });
    const size = new ResizeObserver(looked);
    size.observe(this.box);
    this.close = () => size.disconnect();
    this.body.addEventListener("keydown", (event) => this.#key(event));
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-at]");
      if (row) this.#open(Number(row.dataset.at));
    });
    const tools = h("div", { class: "tools" }, filter, status, this.reset);
    this.frame = h("div", { class: "table-frame" }, this.box);
    this.element = card("partitions", "Partitions", [this.found, tools], this.frame);
  }

  /** Which partition is shown elsewhere, and so marked here. */
  choose(id) {
    this.#chosen = id;
  }

  #ids() {
    return this.#shown.map((index) => this.#model.partitions[index].partition);
  }

  #head() {
    const cells = COLUMNS.map(({ key, title, number }) => {
      const sort = button(title, () => this.#sort(key));
      const cell = h("th", { scope: "col", class: number ? "number" : "" }, sort);
      this.heads.set(key, cell);
      return cell;
    });
    this.heads.get("partition").setAttribute("aria-sort", "ascending");
    return h("thead", {}, h("tr", {}, ...cells));
  }

  #sort(key) {
    const { number } = COLUMNS.find((column) => column.key === key);
    const same = this.#view.key === key;
    // Large numbers are what people look for first.
    const down = same ? !this.#view.down : Boolean(number);
    for (const [other, cell] of this.heads) {
      setAttr(cell, "aria-sort", other === key ? (down ? "descending" : "ascending") : null);
    }
    this.#change({ key, down });
  }

  #change(view) {
    Object.assign(this.#view, view);
    this.#ordered = -Infinity;
    this.#focus = 0;
    this.box.scrollTop = 0;
    this.#seen.top = 0;
    this.#hooks.wake();
  }

  #open(at) {
    const partition = this.#model.partitions[this.#shown[at]];
    if (!partition) return;
    this.#focus = at;
    this.#hooks.select(partition.partition);
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW) - 2);
    const last = this.#shown.length - 1;
    const steps = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page };
    let next = null;
    if (event.key in steps) next = this.#focus + steps[event.key];
    else if (event.key === "Home") next = 0;
    else if (event.key === "End") next = last;
    else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.#open(this.#focus);
      return;
    }
    if (next === null) return;
    event.preventDefault();
    this.#focus = Math.max(0, Math.min(last, next));
    const head = this.table.tHead.offsetHeight;
    const top = this.#focus * ROW;
    const { scrollTop, clientHeight } = this.box;
    if (top < scrollTop) this.box.scrollTop = top;
    else if (top + ROW > scrollTop + clientHeight - head) {
      this.box.scrollTop = top + ROW - clientHeight + head;
    }
    this.#seen.top = this.box.scrollTop;
    this.#fill(this.#now);
    this.body.querySelector(`tr[data-at="${this.#focus}"]`)?.focus({ preventScroll: true });
  }

  /** Brings the rows in view up to date. `now` is the server's time. */
  render(now) {
    this.#now = now;
    const at = performance.now();
    const { structure } = this.#model.version;
    if (structure !== this.#structure || at - this.#ordered > ORDER_MS) {
      this.#ordered = at;
      this.#structure = structure;
      this.#shown = arrange(this.#model.partitions, this.#view);
      this.#focus = Math.max(0, Math.min(this.#focus, this.#shown.length - 1));
      const all = this.#model.partitions.length;
      const some = this.#shown.length;
      setText(this.found, some === all ? count(all) : `${count(some)} of ${count(all)}`);
      this.reset.disabled = some === 0;
      setText(this.reset, some === 1 ? "Reset checkpoint…" : `Reset ${count(some)} checkpoints…`);
      setAttr(this.table, "aria-rowcount", some + 1);
      this.frame.style.minHeight = `${Math.min(HEIGHT, (all + 2) * ROW)}px`;
    }
    this.#fill(now);
  }

  #fill(now) {
    const { top, height } = this.#seen;
    const [from, to] = rowsIn(top, height, ROW, this.#shown.length);
    while (this.#rows.length < to - from) {
      const row = new Row(this.#palette);
      this.#rows.push(row);
      this.below.before(row.element);
    }
    while (this.#rows.length > to - from) this.#rows.pop().element.remove();
    this.above.firstChild.style.height = `${from * ROW}px`;
    this.below.firstChild.style.height = `${(this.#shown.length - to) * ROW}px`;
    this.above.hidden = from === 0;
    this.below.hidden = to === this.#shown.length;
    for (let at = from; at < to; at += 1) {
      const partition = this.#model.partitions[this.#shown[at]];
      const focus = at === this.#focus || (at === from && !inside(this.#focus, from, to));
      if (partition) this.#rows[at - from].show(partition, at, focus, this.#chosen, now);
    }
  }
}

const inside = (at, from, to) => at >= from && at < to;

class Row {
  constructor(palette) {
    this.palette = palette;
    this.cells = COLUMNS.map(({ number }, at) =>
      h(at === 0 ? "th" : "td", { class: number ? "number" : "", scope: at === 0 ? "row" : null }),
    );
    this.element = h("tr", {}, ...this.cells);
    this.owner = undefined;
  }

  show(partition, at, focus, chosen, now) {
    const { element } = this;
    const [id, owner, status, lag, next, end, epoch, checkpoint] = this.cells;
    setAttr(element, "data-at", at);
    setAttr(element, "aria-rowindex", at + 2);
    setAttr(element, "tabindex", focus ? "0" : "-1");
    setAttr(element, "aria-selected", partition.partition === chosen ? "true" : null);
    if (this.id !== partition.partition) {
      this.id = partition.partition;
      clear(id).append(name(partition.partition));
    }
    this.#showOwner(owner, partition);
    const word = statusOf(partition);
    setText(status, word);
    setAttr(status, "class", `status ${word}`);
    setText(lag, count(partition.lag));
    setText(next, count(partition.next_offset));
    setText(end, count(endOf(partition)));
    setText(epoch, count(partition.epoch));
    setText(checkpoint, partition.updated_ms ? age(partition.updated_ms, now) : "never");
  }

  #showOwner(cell, partition) {
    const next = nextOwner(partition);
    const key = `${partition.owner}\n${next}`;
    if (this.owner === key) return;
    this.owner = key;
    clear(cell);
    if (partition.owner === null) cell.append(h("span", { class: "muted" }, "nobody"));
    else cell.append(tag(this.palette, partition.owner), " ", name(partition.owner));
    if (next !== null) {
      const to = h("span", { class: "muted" }, " → ");
      cell.append(to, tag(this.palette, next), " ", h("span", { class: "hush" }, visible(next)));
    }
  }
}
