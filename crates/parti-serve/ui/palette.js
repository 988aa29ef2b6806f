// Which colour and which short tag an owner has. Pure.
//
// Eight colours that people with any common colour blindness tell apart, and a tag of up to three
// characters, because there are more workers than colours. Both stay with a worker: `worker-9` is
// "9" in the second colour today and tomorrow, unless another worker of the same number was first.

/** By theme, in the order in which they are given out. */
export const COLOURS = {
  light: ["#4667cb", "#f75d00", "#198155", "#8b2062", "#6ea828", "#5aaedb", "#d4738c", "#544195"],
  dark: ["#7197d9", "#fb861e", "#3bb67d", "#b36e9d", "#cdd363", "#8fd0f5", "#f498b9", "#966ce7"],
};

const TRAILING = /([0-9]+)$/;

export class Palette {
  #looks = new Map();
  #tags = new Set();
  #used = new Array(COLOURS.light.length).fill(0);

  /** The look of an owner: `{ slot, tag }`, the same for as long as the page is open. */
  look(id) {
    let look = this.#looks.get(id);
    if (!look) {
      look = { slot: this.#slot(id), tag: this.#tag(id) };
      this.#looks.set(id, look);
    }
    return look;
  }

  /** Makes these known in this order, so that a reload gives the same looks. */
  meet(ids) {
    for (const id of ids) this.look(id);
  }

  #slot(id) {
    const number = TRAILING.exec(id);
    const wanted = number ? Number(number[1].slice(-6)) : hash(id);
    const size = this.#used.length;
    const least = Math.min(...this.#used);
    let slot = wanted % size;
    while (this.#used[slot] > least) slot = (slot + 1) % size;
    this.#used[slot] += 1;
    return slot;
  }

  #tag(id) {
    const number = TRAILING.exec(id)?.[1].replace(/^0+(?=.)/, "") ?? "";
    const letters = id.replace(/[^a-zA-Z]/g, "").toLowerCase();
    const wanted = [
      number.length <= 3 ? number : "",
      number.length <= 2 ? letters.slice(0, 1) + number : "",
      letters.slice(0, 2),
      letters.slice(0, 3),
    ];
    let tag = wanted.find((tag) => tag !== "" && !this.#tags.has(tag));
    for (let n = 1; tag === undefined; n += 1) {
      const next = `#${n.toString(36)}`;
      if (!this.#tags.has(next)) tag = next;
    }
    this.#tags.add(tag);
    return tag;
  }
}

function hash(text) {
  let sum = 2166136261;
  for (let i = 0; i < text.length; i += 1) {
    sum = Math.imul(sum ^ text.charCodeAt(i), 16777619) >>> 0;
  }
  return sum;
}

/** Red, green and blue of `#rrggbb`. */
export function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** A colour between two: 0 is the first, 1 the second. */
export function mix(from, to, part) {
  const [a, b] = [channels(from), channels(to)];
  const each = a.map((value, i) => Math.round(value + (b[i] - value) * part));
  return `#${each.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

/** The brightness as the eye sees it, 0 to 1. */
export function luminance(hex) {
  const [r, g, b] = channels(hex).map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** How well one is read on the other, 1 to 21. */
export function contrast(a, b) {
  const [x, y] = [luminance(a), luminance(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}

/** Black or white, whichever is read better on a colour. */
export function ink(background) {
  return contrast(background, "#10141a") >= contrast(background, "#ffffff") ? "#10141a" : "#ffffff";
}
