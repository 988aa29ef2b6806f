// Colours and tags of owners.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { COLOURS, Palette, channels, contrast, ink, mix } from "../palette.js";

test("looks are stable, tags differ, and the first eight colours too", () => {
  const palette = new Palette();
  const ids = Array.from({ length: 64 }, (_, n) => `worker-${n}`);
  palette.meet(ids);
  assert.equal(new Set(ids.map((id) => palette.look(id).tag)).size, 64);
  assert.equal(new Set(ids.slice(0, 8).map((id) => palette.look(id).slot)).size, 8);
  assert.deepEqual(palette.look("worker-9"), { slot: 1, tag: "9" });
  const again = new Palette();
  again.meet(ids);
  for (const id of ids) assert.deepEqual(again.look(id), palette.look(id));
});

test("odd names get short tags of their own", () => {
  const palette = new Palette();
  const ids = ["worker-1", "batch-1", "alpha", "alto", "al", "", "<b>", "…", "worker-123456", "ü"];
  const tags = ids.map((id) => palette.look(id).tag);
  assert.equal(new Set(tags).size, ids.length, tags.join(" "));
  for (const tag of tags) assert.match(tag, /^[#a-z0-9]{1,3}$/);
  const many = new Palette();
  const same = Array.from({ length: 2000 }, (_, n) => "x".repeat(n + 1));
  assert.equal(new Set(same.map((id) => many.look(id).tag)).size, 2000);
});

test("the style sheet and the canvas use the same colours", () => {
  const css = readFileSync(new URL("../style.css", import.meta.url), "utf8");
  for (const theme of ["light", "dark"]) {
    COLOURS[theme].forEach((colour, slot) => {
      assert.ok(css.includes(`--c${slot}: ${colour};`), `${theme} ${slot}`);
    });
  }
});

test("a tag can be read on its colour", () => {
  for (const colour of [...COLOURS.light, ...COLOURS.dark]) {
    assert.ok(contrast(colour, ink(colour)) >= 4.5, `${colour} ${contrast(colour, ink(colour))}`);
  }
  assert.equal(mix("#000000", "#ffffff", 0.5), "#808080");
});

/** What a colour becomes for eyes without one kind of cone (Machado, Oliveira, Fernandes 2009). */
const EYES = {
  normal: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protan: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deutan: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritan: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

function lab(hex, eyes) {
  const linear = channels(hex).map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  const [r, g, b] = eyes.map((row) =>
    Math.min(
      1,
      Math.max(
        0,
        row.reduce((sum, factor, at) => sum + factor * linear[at], 0),
      ),
    ),
  );
  const f = (t) => (t > 0.008856 ? Math.cbrt(t) : 7.787 * t + 16 / 116);
  const x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
  const y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
  const z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

test("any two colours differ clearly, whatever eyes look at them", () => {
  for (const theme of ["light", "dark"]) {
    for (const [name, eyes] of Object.entries(EYES)) {
      COLOURS[theme].forEach((one, at) => {
        for (const other of COLOURS[theme].slice(at + 1)) {
          const [a, b] = [lab(one, eyes), lab(other, eyes)];
          const far = Math.hypot(...a.map((value, axis) => value - b[axis]));
          assert.ok(far >= 15, `${theme} ${name} ${one} ${other}: ${far.toFixed(1)}`);
        }
      });
    }
  }
});
