// Who is silent, by the page's own clock.

import assert from "node:assert/strict";
import test from "node:test";
import { Beats } from "../beats.js";
import { worker } from "./fixtures.js";

/** A page that looks at workers which beat every so many seconds. */
class Page {
  now = 5000;
  beats = new Beats();
  workers = new Map();

  constructor(ids, more = {}) {
    for (const id of ids) this.workers.set(id, worker(id, { renewed_ms: 1_000_000, ...more }));
    this.beats.heard(this.now);
    this.look([...this.workers.values()]);
  }

  look(workers) {
    for (const one of workers) this.workers.set(one.worker, one);
    this.beats.look(workers, 1_000_000);
    this.beats.keep((id) => this.workers.has(id));
  }

  /** Seconds in which these beat, every so many of them. */
  pass(seconds, ids = [], every = 2) {
    for (let second = 1; second <= seconds; second += 1) {
      this.now += 1000;
      this.beats.heard(this.now);
      if (second % every > 0) continue;
      const beating = ids.map((id) => this.workers.get(id));
      this.look(beating.map((one) => ({ ...one, beat: one.beat + 1 })));
    }
  }

  silent() {
    return [...this.workers.values()].filter((one) => this.beats.isSilent(one)).map((w) => w.worker);
  }
}

test("whose beat stands still is silent, whatever the clocks of others say", () => {
  const page = new Page(["a", "b"], { renewed_ms: 1_000_000 - 11_000 });
  assert.deepEqual(page.silent(), [], "a clock that is slow says nothing");
  page.pass(20, ["a", "b"]);
  assert.deepEqual(page.silent(), []);
  page.pass(12, ["a"]);
  assert.deepEqual(page.silent(), ["b"]);
  page.pass(2, ["a", "b"]);
  assert.deepEqual(page.silent(), []);
});

test("a group that beats seldom is given more time", () => {
  const page = new Page(["a", "b"]);
  page.pass(120, ["a", "b"], 20);
  page.pass(40, ["a"], 20);
  assert.deepEqual(page.silent(), []);
  page.pass(40, ["a"], 20);
  assert.deepEqual(page.silent(), ["b"]);
});

test("before any beat was seen, a minute is given, unless it was silent for long already", () => {
  const page = new Page(["a"]);
  page.pass(59);
  assert.deepEqual(page.silent(), []);
  page.pass(2);
  assert.deepEqual(page.silent(), ["a"]);
  const old = new Page(["a"], { renewed_ms: 1 });
  assert.deepEqual(old.silent(), ["a"]);
  old.pass(2, ["a"]);
  assert.deepEqual(old.silent(), [], "its clock was wrong");
  assert.deepEqual(new Page(["a"], { renewed_ms: null }).silent(), []);
});

test("while the store is not heard, nobody is blamed", () => {
  const page = new Page(["a"]);
  page.pass(8, ["a"]);
  page.beats.lost();
  page.now += 100_000;
  page.beats.heard(page.now);
  assert.deepEqual(page.silent(), []);
  page.pass(9);
  assert.deepEqual(page.silent(), []);
  page.pass(2);
  assert.deepEqual(page.silent(), ["a"]);
  // A page that slept did not hear it either.
  const asleep = new Page(["a"]);
  asleep.pass(8, ["a"]);
  asleep.now += 3_600_000;
  asleep.pass(1);
  assert.deepEqual(asleep.silent(), []);
});

test("another life begins anew, and who is gone is forgotten", () => {
  const page = new Page(["a", "b"]);
  page.pass(8, ["a", "b"]);
  page.pass(12, ["a"]);
  page.look([worker("b", { incarnation: 6 })]);
  assert.deepEqual(page.silent(), []);
  page.pass(12, ["a"]);
  assert.deepEqual(page.silent(), ["b"]);
  const gone = page.workers.get("b");
  page.workers.delete("b");
  page.look([]);
  assert.ok(!page.beats.isSilent(gone));
});
