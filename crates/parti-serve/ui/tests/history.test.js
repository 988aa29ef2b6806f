// What the page remembers.

import assert from "node:assert/strict";
import test from "node:test";
import { HandoffTimes, HandoffWatch, Meter, Rebalances, Series, quantile } from "../history.js";

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

/** A watch that has begun to look, before anything moved. */
function watching() {
  const watch = new HandoffWatch();
  watch.look([], [], () => null, 0);
  return watch;
}

test("a handoff is watched from its first stage to its end", () => {
  const watch = watching();
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
    watch.finished.map(({ partition, took, whole, outcome }) => [partition, took, whole, outcome]),
    [
      ["1", 500, true, "done"],
      ["2", 500, true, "withdrawn"],
    ],
  );
});

test("a move that was over before it was seen counts, without a length", () => {
  const watch = watching();
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
    { partition: "1", from: "a", to: "b", took: null, whole: true, outcome: "done" },
  ]);
});

test("what was under way when the page began to look took longer than it saw", () => {
  const watch = new HandoffWatch();
  assert.ok(watch.blind);
  watch.look([handoff("1", "b", "ready")], [], () => "a", 1000);
  assert.ok(!watch.blind);
  watch.look([], [["1", "a", "b"]], () => "b", 1400);
  const [{ took, whole }] = watch.finished;
  assert.deepEqual([took, whole], [400, false]);
});

test("what ended while nothing was seen has no length, and what is still under way begins anew", () => {
  const watch = watching();
  const first = [handoff("1", "b", "preparing"), handoff("2", "b", "preparing")];
  watch.look(first, [], () => "a", 1000);
  watch.lost();
  assert.ok(watch.blind);
  assert.equal(watch.under.size, 0);
  const missed = [
    ["1", "a", "b"],
    ["3", "a", "b"],
  ];
  watch.look([handoff("2", "b", "taking")], missed, () => "b", 601_000);
  assert.deepEqual(watch.finished, []);
  watch.look([], [["2", "a", "b"]], () => "b", 601_300);
  assert.deepEqual(watch.finished, [
    { partition: "2", from: "a", to: "b", took: 300, whole: false, outcome: "done" },
  ]);
});

test("a handoff to another worker begins anew", () => {
  const watch = new HandoffWatch();
  watch.look([handoff("1", "b", "preparing")], [], () => "a", 1000);
  watch.look([handoff("1", "c", "preparing")], [], () => "a", 2000);
  assert.equal(watch.under.get("1").begun, 2000);
});

const event = (n, at_ms, kind, text = "", more = {}) => ({ n, at_ms, kind, text, ...more });

const moved = (n, at_ms, count, took_ms, pause_ms) =>
  event(n, at_ms, "handoff", "", { moves: { count, reason: "x", took_ms, pause_ms } });

test("how long handoffs took is as the history tells it, however short they were", () => {
  const times = new HandoffTimes();
  assert.equal(times.summary(), null);
  times.events([
    event(1, 900, "join"),
    moved(2, 1000, 3, 40, 2),
    event(3, 1500, "handoff", "rolled back"),
    moved(4, 2000, 1, 9000, 700),
  ]);
  // A page that connects again is told what it knows, too.
  times.events([moved(4, 2000, 1, 9000, 700), moved(5, 3000, 1, 60, 1)]);
  assert.deepEqual(times.list, [
    { at: 1000, moved: 3, took: 40, pause: 2 },
    { at: 2000, moved: 1, took: 9000, pause: 700 },
    { at: 3000, moved: 1, took: 60, pause: 1 },
  ]);
  assert.deepEqual(times.summary(), {
    moved: 5,
    since: 1000,
    took: { half: 40, longest: 9000 },
    pause: { half: 2, longest: 700 },
  });
});

test("of handoffs the newest are counted", () => {
  const times = new HandoffTimes();
  times.events(Array.from({ length: 201 }, (_, n) => moved(n, n, 1, n === 0 ? 5000 : 10, 0)));
  assert.equal(times.list.length, 200);
  assert.deepEqual(times.summary().took, { half: 10, longest: 10 });
});

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
  const once = (...values) => values.map((value) => [value, 1]);
  assert.equal(quantile([], 0.5), null);
  assert.equal(quantile(once(5, 1, 3), 0.5), 3);
  assert.equal(quantile(once(5, 1, 3), 1), 5);
  const weighed = [
    [5, 1],
    [1, 1],
    [3, 9],
  ];
  assert.equal(quantile(weighed, 0.9), 3);
  assert.equal(quantile(weighed, 0.95), 5);
});
