// The map of partitions: a cell each, in its owner's colour, as full as its lag is large.
//
// The canvas is as large as what is in view, and stays there while the rest scrolls under it. Only
// cells that would look different are painted again; a change of owner lays the map out anew.

import { announce, card, fit, h, inks, onTheme, setText, theme } from "./dom.js";
import { count, visible } from "./format.js";
import { cellAt, layOut, level, placeOf, roundUp, step } from "./layout.js";
import { STATUSES, nextOwner, statusOf } from "./model.js";
import { COLOURS, ink, mix } from "./palette.js";

const LABEL_WIDTH = 132;
const NARROW_LABEL = 58;
/** As high as the box may become. */
const LOW_ENOUGH = 620;
const TIP_OFFSET = 14;

export class PartitionMap {
  #model;
  #palette;
  #select;
  #wake;
  #order = []; // cell number to index of partition
  #cellOf = []; // the other way round
  #keys = []; // owner of each band
  #layout = null;
  #byOwner = true;
  #full = 100;
  #focus = -1;
  #hover = -1;
  #chosen = null;
  #showsIds = false; // all cells, or none
  #colours = null;
  #repaint = true;
  #painted = new Int32Array(0); // how each cell looks on the canvas now
  #version = null; // of the model's partitions that the map is laid out for
  #frame = { width: 0, height: 0, top: 0 }; // of the box, read when it changes
  #stop;

  constructor(model, palette, { select, wake }) {
    this.#model = model;
    this.#palette = palette;
    this.#select = select;
    this.#wake = wake;
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.spacer = h("div", { class: "map-space" }, this.canvas);
    this.tip = h("div", { class: "tip", hidden: true });
    this.box = h(
      "div",
      {
        class: "map-box",
        tabindex: "0",
        role: "application",
        "aria-label":
          "Map of partitions. Arrow keys go from cell to cell, Home and End to the ends of an " +
          "owner, Page Up and Page Down to another owner, Enter shows the partition. The table " +
          "of partitions tells the same.",
      },
      this.spacer,
    );
    this.element = card(
      "map",
      "Map",
      [this.#orderSwitch()],
      h("div", { class: "map-frame" }, this.box, this.tip),
      this.#legend(),
    );
    this.#listen();
    const size = new ResizeObserver(() => {
      const { clientWidth: width, clientHeight: height } = this.box;
      // A layout depends on the width alone; its own height must not make it anew.
      if (width !== this.#frame.width) this.#layout = null;
      Object.assign(this.#frame, { width, height });
      this.#again();
    });
    size.observe(this.box);
    const unTheme = onTheme(() => this.#invalidate());
    this.#stop = () => {
      size.disconnect();
      unTheme();
    };
  }

  close() {
    this.#stop();
  }

  /** Which partition is shown elsewhere, and so marked here. */
  choose(id) {
    this.#chosen = id;
    this.#again();
  }

  #invalidate() {
    this.#layout = null;
    this.#colours = null;
    this.#wake();
  }

  #again() {
    this.#repaint = true;
    this.#wake();
  }

  #orderSwitch() {
    const options = [
      ["owner", "By owner"],
      ["id", "By id"],
    ].map(([value, label]) => {
      const input = h("input", {
        type: "radio",
        name: "map-order",
        value,
        checked: value === "owner",
        on: {
          change: () => {
            this.#byOwner = value === "owner";
            this.#layout = null;
            this.#wake();
          },
        },
      });
      return h("label", {}, input, h("span", {}, label));
    });
    return h("fieldset", { class: "switch" }, h("legend", { class: "hush" }, "Order"), ...options);
  }

  #legend() {
    this.fullness = h("span", {});
    const key = (shape, text) =>
      h(
        "span",
        { class: "key" },
        h("i", { class: `swatch ${shape}`, "aria-hidden": "true" }),
        text,
      );
    return h(
      "p",
      { class: "legend" },
      h(
        "span",
        { class: "key" },
        h("i", { class: "swatch level", "aria-hidden": "true" }),
        this.fullness,
      ),
      key("moving", "moving"),
      key("paused", "paused"),
      key("none", "nobody serves it"),
    );
  }

  #listen() {
    const { box } = this;
    const scrolled = () => {
      this.#frame.top = box.scrollTop;
      this.#again();
    };
    box.addEventListener("scroll", scrolled, { passive: true });
    box.addEventListener("pointermove", (event) => this.#point(this.#cellUnder(event), event));
    box.addEventListener("pointerleave", () => this.#point(-1));
    box.addEventListener("click", (event) => this.#pick(this.#cellUnder(event)));
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("focus", () => {
      if (this.#focus < 0 && this.#order.length > 0) this.#focus = 0;
      if (box.matches(":focus-visible")) this.#say();
      this.#again();
    });
    box.addEventListener("blur", () => {
      this.tip.hidden = true;
      this.#again();
    });
  }

  #cellUnder(event) {
    if (!this.#layout) return -1;
    const frame = this.box.getBoundingClientRect();
    const y = event.clientY - frame.top + this.box.scrollTop;
    return cellAt(this.#layout, event.clientX - frame.left, y);
  }

  #point(cell) {
    if (cell === this.#hover) return;
    this.#hover = cell;
    this.#showTip(cell);
    this.#again();
  }

  #pick(cell) {
    const partition = this.#partitionAt(cell);
    if (!partition) return;
    this.#focus = cell;
    this.#select(partition.partition);
    this.#again();
  }

  #key(event) {
    if (!this.#layout || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.#pick(this.#focus);
      return;
    }
    const next = step(this.#layout, Math.max(0, this.#focus), event.key);
    if (next === null) return;
    event.preventDefault();
    this.#focus = next;
    this.#scrollTo(next);
    this.#say();
    this.#again();
  }

  #scrollTo(cell) {
    const { y } = placeOf(this.#layout, cell);
    const { top, height } = this.#frame;
    const bottom = y + this.#layout.size.h;
    if (y < top) this.box.scrollTop = Math.max(0, y - 20);
    else if (bottom > top + height) this.box.scrollTop = bottom - height + 20;
  }

  #say() {
    const partition = this.#partitionAt(this.#focus);
    if (!partition) return;
    announce(describe(partition));
    this.#showTip(this.#focus);
  }

  #partitionAt(cell) {
    return this.#model.partitions[this.#order[cell]] ?? null;
  }

  #showTip(cell) {
    const partition = this.#partitionAt(cell);
    this.tip.hidden = !partition;
    if (!partition) return;
    setText(this.tip, describe(partition));
    const { x, y } = placeOf(this.#layout, cell);
    const top = y - this.#frame.top + this.#layout.size.h + 6;
    const width = this.tip.offsetWidth;
    const left = Math.min(x - TIP_OFFSET, this.#frame.width - width);
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${top}px`;
  }

  /** Brings the canvas up to date. `maxLag` is the largest lag there is. */
  render(maxLag) {
    if (this.#frame.width === 0) return;
    const full = roundUp(maxLag);
    // Shrinking waits for a clear difference, so that the scale does not flicker.
    if (full > this.#full || full * 5 <= this.#full || this.#version === null) {
      this.#full = full;
      setText(this.fullness, `lag, full from ${count(full)}`);
    }
    const { structure, owners } = this.#model.version;
    const version = this.#byOwner ? `${structure} ${owners}` : `${structure}`;
    if (!this.#layout || version !== this.#version) {
      this.#version = version;
      this.#arrange();
      this.#repaint = true;
    }
    this.#paint(this.#repaint);
    this.#repaint = false;
    if (!this.tip.hidden) {
      const partition = this.#partitionAt(this.#hover >= 0 ? this.#hover : this.#focus);
      if (partition) setText(this.tip, describe(partition));
    }
  }

  #arrange() {
    const { partitions, workers } = this.#model;
    const focused = this.#partitionAt(this.#focus)?.partition;
    let counts = [partitions.length];
    if (this.#byOwner) {
      const bands = new Map([...workers.keys()].map((id) => [id, []]));
      const nobody = [];
      partitions.forEach((partition, index) => {
        // What is being taken stands where it will be, so that nothing jumps twice.
        const owner = partition.owner ?? nextOwner(partition);
        if (owner === null) nobody.push(index);
        else if (bands.has(owner)) bands.get(owner).push(index);
        else bands.set(owner, [index]);
      });
      const shown = [...bands];
      if (nobody.length > 0) shown.unshift([null, nobody]);
      this.#keys = shown.map(([key]) => key);
      this.#order = shown.flatMap(([, members]) => members);
      counts = shown.map(([, members]) => members.length);
    } else {
      this.#keys = [];
      this.#order = partitions.map((_, index) => index);
    }
    this.#cellOf = new Array(partitions.length);
    this.#order.forEach((index, cell) => (this.#cellOf[index] = cell));
    const { width } = this.#frame;
    const label = this.#byOwner ? (width < 520 ? NARROW_LABEL : LABEL_WIDTH) : 0;
    this.#layout = layOut(counts, { width, label, lowEnough: LOW_ENOUGH });
    this.spacer.style.height = `${this.#layout.height}px`;
    this.#painted = new Int32Array(this.#layout.count);
    const longest = partitions.reduce((most, { partition }) => Math.max(most, partition.length), 0);
    this.#showsIds = this.#layout.size.w >= Math.min(38, longest * 6.2 + 4);
    if (focused !== undefined) this.#focus = this.#cellOf[this.#model.indexOf(focused)] ?? -1;
    this.#hover = -1;
  }

  #theme() {
    if (this.#colours) return this.#colours;
    const page = inks();
    const solid = COLOURS[theme()];
    this.#colours = {
      ...page,
      solid,
      tint: solid.map((colour) => mix(page.card, colour, 0.24)),
      inkOnSolid: solid.map(ink),
    };
    return this.#colours;
  }

  /** Paints what is in view: everything, or the cells that look different. */
  #paint(everything) {
    const colours = this.#theme();
    const { width, height, top } = this.#frame;
    const bottom = top + height;
    const context = fit(this.canvas, width, Math.min(height, Math.max(1, this.#layout.height)));
    context.translate(0, -top);
    if (everything) {
      context.clearRect(0, top, width, height);
      this.#painted.fill(-1);
    }
    const { bands, size } = this.#layout;
    for (let at = 0; at < bands.length; at += 1) {
      const band = bands[at];
      if (band.y + band.height < top || band.y > bottom) continue;
      if (everything && this.#byOwner) this.#paintLabel(context, colours, band, this.#keys[at]);
      for (let cell = band.first; cell < band.first + band.count; cell += 1) {
        const partition = this.#model.partitions[this.#order[cell]];
        const look = this.#lookOf(partition);
        if (look === this.#painted[cell]) continue;
        const place = placeOf(this.#layout, cell, band);
        if (place.y + size.h < top || place.y > bottom) continue;
        this.#painted[cell] = look;
        this.#paintCell(context, colours, partition, look, place);
      }
    }
    this.#paintMarks(context, colours);
  }

  /** All that a cell's picture depends on, in a number: colour, height of the lag, status. */
  #lookOf(partition) {
    const slot = partition.owner === null ? 15 : this.#palette.look(partition.owner).slot;
    const fill = Math.round(level(partition.lag, this.#full) * this.#layout.size.h);
    return (STATUSES.indexOf(statusOf(partition)) << 12) | (fill << 4) | slot;
  }

  #paintLabel(context, colours, band, owner) {
    const { label } = this.#layout;
    const narrow = label === NARROW_LABEL;
    const [x, right] = [band.x, band.x + label - 8];
    const middle = Math.round(
      band.y + Math.min(band.height, Math.max(16, this.#layout.size.h)) / 2,
    );
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.font = "600 11px system-ui, sans-serif";
    if (owner === null) {
      // What an operator paused is not missing.
      const missing = this.#model.partitions.some((one) => statusOf(one) === "unserved");
      context.fillStyle = missing ? colours.bad : colours.muted;
      context.fillText(narrow ? "nobody" : `nobody · ${band.count}`, x, middle, label - 8);
      return;
    }
    const { slot, tag } = this.#palette.look(owner);
    context.fillStyle = colours.solid[slot];
    context.beginPath();
    context.roundRect(x, middle - 7, 26, 14, 4);
    context.fill();
    context.fillStyle = colours.inkOnSolid[slot];
    context.textAlign = "center";
    context.fillText(tag, x + 13, middle + 0.5, 24);
    context.textAlign = "right";
    context.fillStyle = colours.muted;
    context.font = "11px system-ui, sans-serif";
    context.fillText(String(band.count), right, middle, 30);
    if (narrow) return;
    context.textAlign = "left";
    context.fillStyle = colours.ink;
    context.fillText(shorten(context, visible(owner), label - 68), x + 32, middle);
  }

  #paintCell(context, colours, partition, look, { x, y }) {
    const { w, h } = this.#layout.size;
    const [slot, fill, status] = [look & 15, (look >> 4) & 255, STATUSES[look >> 12]];
    const owned = slot < colours.solid.length;
    const named = this.#showsIds && w >= 20 && status !== "paused" && status !== "pausing";
    context.fillStyle = owned ? colours.tint[slot] : colours.well;
    context.fillRect(x, y, w, h);
    if (named) this.#paintId(context, partition, colours.ink, x, y);
    if (fill > 0) {
      context.fillStyle = owned ? colours.solid[slot] : colours.edge;
      context.fillRect(x, y + h - fill, w, fill);
      if (named) this.#paintCovered(context, partition, colours, look, { x, y });
    }
    if (status !== "served") paintStatus(context, colours, status, x, y, w, h);
  }

  /** Where the lag covers the id, it is written again in the ink for that colour. */
  #paintCovered(context, partition, colours, look, { x, y }) {
    const { w, h } = this.#layout.size;
    const [slot, fill] = [look & 15, (look >> 4) & 255];
    context.save();
    context.beginPath();
    context.rect(x, y + h - fill, w, fill);
    context.clip();
    this.#paintId(context, partition, colours.inkOnSolid[slot] ?? colours.ink, x, y);
    context.restore();
  }

  #paintId(context, partition, colour, x, y) {
    const { w, h } = this.#layout.size;
    const text = visible(partition.partition);
    context.font = `${h >= 24 ? 11 : 10}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = colour;
    context.fillText(shorten(context, text, w - 6), x + w / 2, y + h / 2 + 0.5);
  }

  /** Where the keyboard is, what is chosen, what the pointer is at. */
  #paintMarks(context, colours) {
    const { w, h } = this.#layout.size;
    const mark = (cell, colour, width) => {
      if (cell === undefined || cell < 0 || cell >= this.#layout.count) return;
      const { x, y } = placeOf(this.#layout, cell);
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.strokeRect(x + width / 2, y + width / 2, w - width, h - width);
    };
    if (this.#chosen !== null) {
      mark(this.#cellOf[this.#model.indexOf(this.#chosen)], colours.ink, 2);
    }
    if (this.box.matches(":focus-visible")) mark(this.#focus, colours.accent, 3);
    if (this.#hover >= 0) mark(this.#hover, colours.ink, 1);
  }
}

/** The signs that tell a status without colour. */
function paintStatus(context, colours, status, x, y, w, h) {
  context.save();
  context.beginPath();
  context.rect(x, y, w, h);
  context.clip();
  context.lineWidth = 1.5;
  if (status === "moving") {
    const side = Math.min(w, h) * 0.55;
    context.fillStyle = colours.ink;
    context.beginPath();
    context.moveTo(x + w, y);
    context.lineTo(x + w, y + side);
    context.lineTo(x + w - side, y);
    context.fill();
  } else if (status === "paused" || status === "pausing") {
    const [thick, high] = [Math.max(2, w * 0.1), h * 0.56];
    context.fillStyle = colours.card;
    context.fillRect(x + w / 2 - thick * 2.5, y + h * 0.14, thick * 5, h * 0.72);
    context.fillStyle = colours.ink;
    context.fillRect(x + w / 2 - thick * 1.5, y + (h - high) / 2, thick, high);
    context.fillRect(x + w / 2 + thick * 0.5, y + (h - high) / 2, thick, high);
  } else {
    context.strokeStyle = colours.bad;
    context.globalAlpha = 0.4;
    context.beginPath();
    for (let at = -h; at < w; at += 5) {
      context.moveTo(x + at, y + h);
      context.lineTo(x + at + h, y);
    }
    context.stroke();
    context.globalAlpha = 1;
    context.strokeRect(x + 0.75, y + 0.75, w - 1.5, h - 1.5);
  }
  context.restore();
}

function shorten(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let keep = text.length - 1;
  while (keep > 1 && context.measureText(`${text.slice(0, keep)}…`).width > width) keep -= 1;
  return `${text.slice(0, keep)}…`;
}

/** A partition in a line. */
export function describe(partition) {
  const { partition: id, owner, lag } = partition;
  const next = nextOwner(partition);
  const parts = [`Partition ${visible(id)}`];
  parts.push(owner === null ? "nobody serves it" : `owner ${visible(owner)}`);
  const status = statusOf(partition);
  if (next !== null) parts.push(`moving to ${visible(next)}`);
  else if (status === "orphaned") parts.push("its owner's session is over");
  else if (status === "paused" || status === "pausing") parts.push(status);
  if (lag !== null) parts.push(lag === 0 ? "caught up" : `lag ${count(lag)}`);
  if (partition.unserved) parts.push(visible(partition.unserved));
  return parts.join(" · ");
}
