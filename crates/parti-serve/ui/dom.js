// Elements. Text is always set as text: nothing here, and nothing elsewhere, makes markup of names.

import { visible } from "./format.js";

/**
 * Makes an element. `props` are attributes; `on` holds listeners; true and false switch an
 * attribute on and off. Children are elements or text.
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) {
        element.addEventListener(event, listener);
      }
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets the text of an element, if it is another. */
export function setText(element, text) {
  const only = element.firstChild;
  if (only && only === element.lastChild && only.nodeType === Node.TEXT_NODE) {
    if (only.data !== text) only.data = text;
  } else {
    element.textContent = text;
  }
}

/** Sets or removes an attribute, if that is a change. */
export function setAttr(element, name, value) {
  if (value === null || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value);
  }
}

export function clear(element) {
  element.replaceChildren();
  return element;
}

export const byId = (id) => document.getElementById(id);

/** A user's name for something: isolated, so that it cannot turn the text around it. */
export function name(text, props = {}) {
  const shown = visible(text);
  return h("bdi", { class: "name", title: shown, ...props }, shown);
}

/** A button. */
export function button(label, click, props = {}) {
  return h("button", { type: "button", ...props, on: { click } }, label);
}

/** The tag of an owner: its colour and its short name. */
export function tag(palette, id) {
  const { slot, tag } = palette.look(id);
  return h("span", { class: `tag c${slot}`, "aria-hidden": "true" }, tag);
}

/** Changes an owner's tag in place. */
export function setTag(element, palette, id) {
  const { slot, tag } = palette.look(id);
  if (element.className !== `tag c${slot}`) element.className = `tag c${slot}`;
  setText(element, tag);
}

/** A titled part of the page. `tools` stand beside the title. */
export function card(id, title, tools, ...children) {
  const heading = h("h2", { id: `${id}-title` }, title);
  const top = h("header", { class: "card-top" }, heading, ...tools);
  const props = { class: "card", id, "aria-labelledby": `${id}-title`, tabindex: "-1" };
  return h("section", props, top, ...children);
}

/** Says something to screen readers, and to nobody else. */
export function announce(text) {
  setText(byId("announcer"), text);
}

/** Shows a short notice at the edge of the page, for a while. */
export function notify(text, kind = "done") {
  const close = button("×", () => notice.remove(), { class: "plain", "aria-label": "Dismiss" });
  const mark = kind === "done" ? "✓" : "!";
  const notice = h(
    "div",
    { class: `notice ${kind}` },
    h("span", { class: "mark", "aria-hidden": "true" }, mark),
    h("span", {}, text),
    close,
  );
  byId("notices").append(notice);
  if (kind === "done") setTimeout(() => notice.remove(), 8000);
}

/** Whether the page is dark now. */
const DARK = matchMedia("(prefers-color-scheme: dark)");

export const theme = () => (DARK.matches ? "dark" : "light");

/** Calls back when light becomes dark or the other way round; gives what ends that. */
export function onTheme(call) {
  DARK.addEventListener("change", call);
  return () => DARK.removeEventListener("change", call);
}

/** The colours of the page, for canvases. */
export function inks() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    card: read("card"),
    ink: read("ink"),
    muted: read("muted"),
    line: read("line"),
    edge: read("edge"),
    accent: read("accent"),
    bad: read("bad"),
    warn: read("warn"),
    second: read("second"),
    well: read("well"),
  };
}

/** Fits a canvas to so many CSS pixels; gives its context, where one unit is one of them. */
export function fit(canvas, width, height) {
  const ratio = Math.min(3, devicePixelRatio || 1);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
