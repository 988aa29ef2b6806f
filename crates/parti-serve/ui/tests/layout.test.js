// Where cells lie.

import assert from "node:assert/strict";
import test from "node:test";
import { bandOf, cellAt, layOut, level, placeOf, roundUp, rowsIn, step } from "../layout.js";

const WIDE = { width: 940, label: 132, lowEnough: 620 };

test("every cell of every shape is found where it lies, inside, and on no other", () => {
  const shapes = [[12], [3, 0, 5, 0], [78, 79, 1, 0, 200], Array(64).fill(78), [0, 1], [5000]];
  for (const counts of shapes) {
    for (const options of [
      WIDE,
      { width: 350, label: 58, lowEnough: 420 },
      { ...WIDE, label: 0 },
    ]) {
      const layout = layOut(counts, options);
      assert.equal(
        layout.count,
        counts.reduce((a, b) => a + b),
      );
      const taken = new Set();
      for (let cell = 0; cell < layout.count; cell += 1) {
        const { x, y } = placeOf(layout, cell);
        const { w, h } = layout.size;
        assert.equal(cellAt(layout, x, y), cell);
        assert.equal(cellAt(layout, x + w - 1, y + h - 1), cell);
        assert.ok(x >= options.label && x + w <= options.width, `${counts} ${cell}`);
        assert.ok(y + h <= layout.height);
        taken.add(`${x},${y}`);
      }
      assert.equal(taken.size, layout.count);
    }
  }
});

test("few partitions get large cells, many are still all in view", () => {
  assert.equal(layOut([4, 4, 4], WIDE).size.w, 64);
  const large = layOut(Array(64).fill(78), WIDE);
  assert.ok(large.height <= 620, `${large.height}`);
  assert.equal(new Set(large.bands.map(({ x }) => x)).size, 2, "in two columns");
  assert.ok(layOut([5000], { ...WIDE, label: 0 }).height <= 620);
});

test("labels and gaps are no cells", () => {
  const layout = layOut([2, 1], WIDE);
  assert.equal(cellAt(layout, 10, 5), -1);
  assert.equal(cellAt(layout, 132 + 64 * 3, 5), -1);
  assert.equal(cellAt(layout, 140, 10_000), -1);
  assert.equal(cellAt(layout, 140, -1), -1);
});

test("keys lead from cell to cell and from owner to owner", () => {
  const layout = layOut([20, 0, 3], { width: 350, label: 0, lowEnough: 1000 });
  const [{ cols }] = layout.bands;
  assert.equal(step(layout, 0, "ArrowLeft"), 0);
  assert.equal(step(layout, 0, "ArrowRight"), 1);
  assert.equal(step(layout, 0, "ArrowDown"), cols);
  assert.equal(step(layout, cols + 1, "ArrowUp"), 1);
  assert.equal(step(layout, 22, "ArrowRight"), 22);
  assert.equal(step(layout, 3, "End"), 19);
  assert.equal(step(layout, 19, "Home"), 0);
  assert.equal(step(layout, 3, "PageDown"), 20, "past the owner without any");
  assert.equal(step(layout, 21, "PageUp"), 0);
  assert.equal(step(layout, 22, "PageDown"), 22);
  const below = step(layout, 19, "ArrowDown");
  assert.equal(bandOf(layout, below).first, 20);
  assert.ok(bandOf(layout, step(layout, 20, "ArrowUp")).first === 0);
  assert.equal(step(layout, 0, "a"), null);
  assert.equal(step(layOut([], WIDE), 0, "ArrowDown"), null);
});

test("from every cell, every other one is reached", () => {
  const layout = layOut([7, 0, 30, 1], WIDE);
  const keys = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"];
  const seen = new Set([0]);
  for (const cell of seen) {
    for (const key of keys) {
      const next = step(layout, cell, key);
      assert.ok(next >= 0 && next < layout.count);
      seen.add(next);
    }
  }
  assert.equal(seen.size, layout.count);
});

test("rows in view", () => {
  assert.deepEqual(rowsIn(0, 300, 30, 5000), [0, 16]);
  assert.deepEqual(rowsIn(3000, 300, 30, 5000), [94, 116]);
  assert.deepEqual(rowsIn(149_700, 300, 30, 5000), [4984, 5000]);
  assert.deepEqual(rowsIn(0, 300, 30, 0), [0, 0]);
  assert.deepEqual(rowsIn(9000, 300, 30, 3), [3, 3], "a list that became short");
});

test("how full a cell is", () => {
  assert.equal(level(null, 100), 0);
  assert.equal(level(0, 100), 0);
  assert.ok(level(1, 1e6) >= 0.12, "some lag is always seen");
  assert.equal(level(100, 100), 1);
  assert.equal(level(1e9, 100), 1);
  assert.ok(level(10, 1000) < level(100, 1000));
  assert.deepEqual([0, 101, 4999, 5001].map(roundUp), [100, 200, 5000, 10_000]);
});
