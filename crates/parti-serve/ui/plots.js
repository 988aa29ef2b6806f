// Small plots over the last minutes: lines from a series, dots (over the last hour) from single
// durations.

import { fit, h, inks, onTheme, setAttr, setText } from "./dom.js";

const HEIGHT = 84;
const LEAST_MS = 60_000;
const MOST_MS = 300_000;
/** What happens now and then is looked at over a longer time. */
const MOST_OF_DOTS_MS = 3_600_000;

export class Plot {
  #lines;
  #dots;
  #format;
  #drawn = "";
  #colours = null;
  #width = 0;
  #stop;

  /** `lines` are series with a style; `dots` have a style, and `points()` gives `[at, value]`. */
  constructor(title, { lines = [], dots = [], format, wake }) {
    this.#lines = lines;
    this.#dots = dots;
    this.#format = format;
    this.value = h("span", { class: "plot-value number" });
    this.note = h("span", { class: "plot-note muted" });
    this.top = h("span", { class: "plot-top muted number", "aria-hidden": "true" });
    this.canvas = h("canvas", { role: "img", "aria-label": title });
    this.title = title;
    this.frame = h("div", { class: "plot-frame" }, this.canvas, this.top);
    const heading = h("h2", {}, title);
    this.element = h(
      "div",
      { class: "plot" },
      h("div", { class: "plot-head" }, heading, this.value, this.note),
      this.frame,
    );
    const again = () => {
      this.#drawn = "";
      this.#colours = null;
      wake();
    };
    const size = new ResizeObserver(([{ contentRect }]) => {
      this.#width = contentRect.width;
      again();
    });
    size.observe(this.frame);
    const unTheme = onTheme(again);
    this.#stop = () => {
      size.disconnect();
      unTheme();
    };
  }

  close() {
    this.#stop();
  }

  /** Draws what is new. `value` and `note` stand beside the title; `whole` says it at length. */
  render(now, value, note = "", whole = note) {
    setText(this.value, value);
    setText(this.note, note);
    setAttr(this.note, "title", whole === note ? null : whole);
    const dots = this.#dots.map(({ points, ...style }) => ({ points: points(), ...style }));
    const last = this.#lines[0]?.series.times.at(-1) ?? 0;
    const newest = dots[0] ? `${dots[0].points.at(-1)} ${Math.floor(now / 2000)}` : "";
    const key = `${last} ${newest}`;
    if (key === this.#drawn) return;
    this.#drawn = key;
    this.canvas.setAttribute("aria-label", `${this.title}: ${value} ${whole}`);
    this.#draw(now, dots);
  }

  #draw(now, dots) {
    this.#colours ??= inks();
    const colours = this.#colours;
    const width = this.#width;
    if (width === 0) return;
    const context = fit(this.canvas, width, HEIGHT);
    context.clearRect(0, 0, width, HEIGHT);
    const points = dots.flatMap((kind) => kind.points);
    const values = points.map(([, value]) => value);
    for (const { series } of this.#lines) values.push(...series.values);
    const most = nice(Math.max(0, ...values.filter((value) => value !== null)));
    setText(this.top, most > 0 ? this.#format(most) : "");
    const base = HEIGHT - 1;
    const oldest = Math.min(now, points[0]?.[0] ?? now, this.#lines[0]?.series.times[0] ?? now);
    const longest = dots.length > 0 ? MOST_OF_DOTS_MS : MOST_MS;
    const span = Math.max(LEAST_MS, Math.min(longest, now - oldest));
    const x = (at) => width - ((now - at) / span) * width;
    const y = (value) => base - (most > 0 ? (value / most) * (HEIGHT - 16) : 0);
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    context.beginPath();
    for (const at of [base - 0.5, Math.round(y(most / 2)) + 0.5, Math.round(y(most)) + 0.5]) {
      context.moveTo(0, at);
      context.lineTo(width, at);
    }
    context.stroke();
    for (const line of this.#lines) drawLine(context, colours, line, x, y, base);
    for (const kind of dots) {
      const shown = kind.points.filter(([at]) => now - at <= span);
      const places = shown.map(([at, value]) => [Math.min(width - 3, x(at)), y(value)]);
      drawDots(context, colours, kind, places);
    }
  }
}

function drawDots(context, colours, { ink, hollow = false }, places) {
  context.fillStyle = colours[ink];
  context.strokeStyle = colours[ink];
  context.lineWidth = 1.25;
  for (const [x, y] of places) {
    context.beginPath();
    context.arc(x, Math.min(HEIGHT - 3, y), 2.5, 0, Math.PI * 2);
    if (hollow) context.stroke();
    else context.fill();
  }
}

function drawLine(context, colours, { series, ink, dashed = false, filled = false }, x, y, base) {
  context.strokeStyle = colours[ink];
  context.lineWidth = 1.5;
  context.lineJoin = "round";
  context.setLineDash(dashed ? [3, 3] : []);
  for (const run of runs(series)) {
    context.beginPath();
    run.forEach(([at, value], place) => {
      if (place === 0) context.moveTo(x(at), y(value));
      else context.lineTo(x(at), y(value));
    });
    context.stroke();
    if (!filled) continue;
    context.lineTo(x(run.at(-1)[0]), base);
    context.lineTo(x(run[0][0]), base);
    context.globalAlpha = 0.14;
    context.fillStyle = colours[ink];
    context.fill();
    context.globalAlpha = 1;
  }
  context.setLineDash([]);
}

/** A series without its gaps: runs of points that are known. */
function runs({ times, values }) {
  const all = [];
  let run = [];
  values.forEach((value, at) => {
    if (value === null) {
      if (run.length > 0) all.push(run);
      run = [];
    } else {
      run.push([times[at], value]);
    }
  });
  if (run.length > 0) all.push(run);
  return all;
}

/** A round number at or above a value. */
function nice(value) {
  if (value <= 0) return 0;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 5, 7.5, 10]
    .map((step) => step * power)
    .find((step) => step >= value * 0.999);
}
