// How values become text.

import assert from "node:assert/strict";
import test from "node:test";
import {
  age,
  clock,
  compact,
  compareIds,
  compareNames,
  count,
  duration,
  plural,
  visible,
} from "../format.js";

test("numbers", () => {
  assert.equal(count(null), "–");
  assert.equal(count(1234567), "1,234,567");
  const cases = [
    [0, "0"],
    [0.04, "0"],
    [1.25, "1.3"],
    [12.6, "13"],
    [999, "999"],
    [1000, "1.0k"],
    [9949, "9.9k"],
    [9951, "10k"],
    [999_499, "999k"],
    [999_500, "1.0M"],
    [5_600_000, "5.6M"],
    [2 ** 63, "9.2E"],
    [undefined, "–"],
    [NaN, "–"],
  ];
  for (const [number, text] of cases) assert.equal(compact(number), text);
  assert.equal(plural(1, "partition"), "1 partition");
  assert.equal(plural(0, "partition"), "0 partitions");
});

test("durations and ages", () => {
  const cases = [
    [-5, "0 ms"],
    [340, "340 ms"],
    [999.6, "1.0 s"],
    [2449, "2.4 s"],
    [9960, "10 s"],
    [59_400, "59 s"],
    [59_600, "1 min 00 s"],
    [185_000, "3 min 05 s"],
    [7_800_000, "2 h 10 min"],
    [273_600_000, "3 d 4 h"],
    [null, "–"],
  ];
  for (const [ms, text] of cases) assert.equal(duration(ms), text);
  assert.equal(age(0, 5000), "–", "never");
  assert.equal(age(6000, 5000), "0.0 s", "clocks differ");
  assert.equal(age(1000, 3500), "2.5 s");
  assert.equal(clock(0, 1), "–");
  assert.match(clock(1_700_000_000_000, 1_700_000_100_000), /^\d\d:\d\d:\d\d$/);
  assert.match(clock(1_700_000_000_000, 1_800_000_000_000), /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
});

test("ids are in the server's order: numbers by value, then text", () => {
  const big = "18446744073709551615";
  const ids = ["b", "10", "9", big, "a.2", "007", "18446744073709551614", "A"];
  const sorted = ["007", "9", "10", "18446744073709551614", big, "A", "a.2", "b"];
  assert.deepEqual(ids.sort(compareIds), sorted);
  const names = ["worker-10", "worker-2", "batch-3", "worker-2x"];
  assert.deepEqual(names.sort(compareNames), ["batch-3", "worker-2", "worker-10", "worker-2x"]);
});

test("what cannot be seen in a name is made visible, and the rest stays", () => {
  assert.equal(visible("<img src=x onerror=alert(1)>"), "<img src=x onerror=alert(1)>");
  assert.equal(visible("a\u0000b\u202ec\u2028"), "a\\u{0}b\\u{202e}c\\u{2028}");
  assert.equal(visible("a\u200bb\u3164\ufe0f"), "a\\u{200b}b\\u{3164}\\u{fe0f}");
  assert.equal(visible("a\u2800\u2801"), "a\\u{2800}\u2801");
  assert.equal(visible("ünï/😀"), "ünï/😀");
});
