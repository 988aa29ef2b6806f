// What the page remembers.

import assert from "node:assert/strict";
import test from "node:test";
import { HandoffWatch, Meter, Rebalances, Series, quantile } from "../history.js";

test("a series forgets the oldest", () => {
  const series = new Series(3);
  for (let n = 1; n <= 5; n += 1) series.push(n * 1000, n);
  assert.deepEqual(series.values, [3, 4, 5]);
  assert.deepEqual(series.times, [3000, 4000, 5000]);
  assert.equal(series.last(), 5);
  assert.equal(new Series().last(), null);
});

test("a meter tells growth a second, and nothing across a gap", () => {
  const meter = new Meter();
  assert.equal(meter.look(1000, 50), null);
  assert.equal(meter.look(1500, 60), 20);
  assert.equal(meter.look(3500, 60), 0);
  assert.equal(meter.look(60_000, 9000), null);
  assert.equal(meter.look(61_000, 9001), 1);
});

const handoff = (partition, to, stage, from = "a") => ({ partition, from, to, stage });

test("a handoff is watched from its first stage to its end", () => {
  const watch = new HandoffWatch();
  const owners = { 1: "a", 2: "a" };
  const look = (handoffs, moves, now) => watch.look(handoffs, moves, (id) => owners[id], now);
  look([handoff("1", "b", "preparing"), handoff("2", "c", "preparing")], [], 1000);
  look([handoff("1", "b", "ready"), handoff("2", "c", "preparing")], [], 1200);
  assert.equal(watch.under.get("1").stage, "ready");
  assert.equal(watch.under.get("1").begun, 1000);
  assert.equal(watch.under.get("1").since, 1200);
  owners[1] = "b";
  look([], [["1", "a", "b"]], 1500);
  assert.equal(watch.under.size, 0);
  assert.deepEqual(
    watch.finished.map(({ partition, took, outcome }) => [partition, took, outcome]),
    [
      ["1", 500, "done"],
      ["2", 500, "withdrawn"],
    ],
  );
});

test("a move that was over before it was seen counts, without a length", () => {
  const watch = new HandoffWatch();
  watch.look(
    [],
    [
      ["1", "a", "b"],
      ["2", null, "b"],
      ["3", "a", null],
    ],
    () => "b",
    1000,
  );
  assert.deepEqual(watch.finished, [
    { partition: "1", from: "a", to: "b", at: 1000, took: null, outcome: "done" },
  ]);
});

test("a handoff to another worker begins anew", () => {
  const watch = new HandoffWatch();
  watch.look([handoff("1", "b", "preparing")], [], () => "a", 1000);
  watch.look([handoff("1", "c", "preparing")], [], () => "a", 2000);
  assert.equal(watch.under.get("1").begun, 2000);
});

const event = (n, at_ms, kind, text = "") => ({ n, at_ms, kind, text });

test("rebalances of the past come from events", () => {
  const rebalances = new Rebalances();
  rebalances.events([
    event(1, 1000, "plan", "w-1: odd: joined: 3 partitions placed, 2 moves begun"),
    event(2, 1400, "handoff"),
    event(3, 1900, "handoff"),
    event(4, 9000, "plan", "w-2 crashed: 4 partitions placed"),
    event(5, 9500, "join"),
  ]);
  rebalances.events([event(3, 1900, "handoff")]);
  assert.deepEqual(rebalances.list, [
    { start: 1000, end: 1900, state: "planned", reason: "w-1: odd: joined", placed: 3, moves: 2 },
    { start: 9000, end: 9000, state: "planned", reason: "w-2 crashed", placed: 4, moves: 0 },
  ]);
});

test("a rebalance that is seen begins and ends with the leader's state", () => {
  const rebalances = new Rebalances();
  rebalances.plan({ state: "stable", reason: "first", started_ms: 100 });
  assert.deepEqual(rebalances.list, []);
  rebalances.plan({ state: "scaling", reason: "w-3 joined", started_ms: 5000 });
  rebalances.plan({ state: "rebalancing", reason: "w-3 joined", started_ms: 7000 });
  rebalances.events([event(1, 7001, "plan", "w-3 joined: 5 moves begun")]);
  assert.equal(rebalances.list.length, 1);
  assert.equal(rebalances.list[0].end, null);
  rebalances.plan({ state: "stable", reason: "w-3 joined", started_ms: 8200 });
  assert.deepEqual(rebalances.list, [
    { start: 5000, end: 8200, state: "rebalancing", reason: "w-3 joined", placed: 0, moves: 5 },
  ]);
});

test("a rebalance that runs when the page is opened is the one in the events", () => {
  const rebalances = new Rebalances();
  rebalances.events([event(1, 1050, "plan", "x: 5 moves begun")]);
  rebalances.plan({ state: "emergency", reason: "x", started_ms: 1000 });
  assert.equal(rebalances.list.length, 1);
  assert.equal(rebalances.list[0].end, null);
  assert.equal(rebalances.list[0].moves, 5);
});

test("quantiles", () => {
  assert.equal(quantile([], 0.5), null);
  assert.equal(quantile([5, 1, 3], 0.5), 3);
  assert.equal(quantile([5, 1, 3], 1), 5);
});
