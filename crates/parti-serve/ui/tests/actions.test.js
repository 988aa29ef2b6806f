// What operators ask for.

import assert from "node:assert/strict";
import test from "node:test";
import {
  GROUP_ACTIONS,
  PARTITION_ACTIONS,
  WORKER_ACTIONS,
  changesSomething,
  parseWeights,
  reasonProblem,
  resetSummary,
  resetTarget,
} from "../actions.js";
import { GroupModel } from "../model.js";
import { group, partition, worker } from "./fixtures.js";

const model = new GroupModel();
model.replace(group());

test("a reason is there, and no longer than the service takes, which counts bytes", () => {
  assert.equal(reasonProblem(" a new kernel "), "");
  assert.equal(reasonProblem(" "), "Give a reason.");
  assert.equal(reasonProblem("x".repeat(500)), "");
  assert.equal(reasonProblem("ü".repeat(250)), "");
  assert.equal(reasonProblem("ü".repeat(251)), "2 bytes too long.");
});

test("requests have the shape that the server reads", () => {
  const of = (actions, kind, context, values) =>
    actions[kind].request({ model, ...context }, values);
  const drain = of(WORKER_ACTIONS, "drain", { worker: "w-2" });
  assert.deepEqual(drain, { kind: "drain", worker: "w-2" });
  const evict = of(WORKER_ACTIONS, "evict", { worker: "w-2" }, { stay_away: false });
  assert.deepEqual(evict, { kind: "evict", worker: "w-2", incarnation: 5 });
  const away = of(WORKER_ACTIONS, "evict", { worker: "w-2" }, { stay_away: true });
  assert.equal(away.stay_away, true);
  const move = of(PARTITION_ACTIONS, "move", { partition: "9" }, { to: "w-2" });
  assert.deepEqual(move, { kind: "move", partition: "9", worker: "w-2" });
  const pin = of(PARTITION_ACTIONS, "pin", { partition: "9" }, { to: "w-2" });
  assert.deepEqual(pin, { kind: "pin", partition: "9", worker: "w-2" });
  for (const kind of ["pause", "resume", "unpin"]) {
    const asked = of(PARTITION_ACTIONS, kind, { partition: "9" });
    assert.deepEqual(asked, { kind, partition: "9" });
  }
  assert.deepEqual(of(GROUP_ACTIONS, "rebalance", {}), { kind: "rebalance" });
});

test("every action tells what will happen", () => {
  const context = { model, worker: "w-2", partition: "9" };
  const all = [WORKER_ACTIONS, PARTITION_ACTIONS, GROUP_ACTIONS].flatMap(Object.values);
  for (const action of all) {
    const effects = action.effects(context);
    assert.ok(effects.length > 0 && effects.every((line) => line.length > 10), action.verb);
    for (const line of effects) assert.doesNotMatch(line, /undefined|null|NaN/);
  }
  const drain = WORKER_ACTIONS.drain.effects(context)[0];
  assert.match(drain, /Its partition goes to the other worker/);
  const resume = PARTITION_ACTIONS.resume.effects({ model, partition: "nobody knows" })[0];
  assert.match(resume, /where it starts/);
});

test("what is offered fits what is known", () => {
  const offered = (actions, subject) =>
    Object.keys(actions).filter((kind) => actions[kind].offered(subject));
  assert.deepEqual(offered(WORKER_ACTIONS, worker("w", { drained: false })), ["drain", "evict"]);
  assert.deepEqual(offered(WORKER_ACTIONS, worker("w", { drained: true })), ["undrain", "evict"]);
  assert.deepEqual(offered(WORKER_ACTIONS, worker("w", { status: "evicted" })), []);
  const unpinned = partition("1", "w");
  assert.deepEqual(offered(PARTITION_ACTIONS, unpinned), ["move", "pin", "pause"]);
  const pinned = partition("1", "w", { pinned_to: "w" });
  assert.deepEqual(offered(PARTITION_ACTIONS, pinned), ["move", "pin", "unpin", "pause"]);
  const paused = partition("1", null, { paused: true });
  assert.deepEqual(offered(PARTITION_ACTIONS, paused), ["move", "pin", "resume"]);
});

test("where a checkpoint goes", () => {
  const target = (to, more = {}) => resetTarget({ to, offset: "", time: "", ...more });
  assert.equal(target("earliest"), "earliest");
  assert.equal(target("latest"), "latest");
  assert.deepEqual(target("offset", { offset: " 17 " }), { offset: 17 });
  assert.deepEqual(target("time", { time: "2024-01-02T03:04:05Z" }), { time_ms: 1704164645000 });
  for (const offset of ["", "-1", "1.5", "x", "1e3"]) {
    assert.throws(() => target("offset", { offset }), /whole number/);
  }
  assert.throws(() => target("time", { time: "" }), /date/);
  assert.throws(() => target("nowhere"), /Choose/);
});

test("what a dry run told", () => {
  const changes = [
    { partition: "1", from: 10, to: 0 },
    { partition: "2", from: null, to: 7 },
    { partition: "3", from: { next_offset: 4 }, to: { next_offset: 4 } },
  ];
  const summary = resetSummary(changes);
  assert.match(summary, /1 partition back: messages are handled again/);
  assert.match(summary, /1 partition forward: messages are skipped/);
  assert.match(summary, /1 partition unchanged/);
  assert.equal(resetSummary([]), "nothing to change");
});

test("whether a reset would change something", () => {
  assert.ok(!changesSomething([]));
  assert.ok(!changesSomething([{ from: 4, to: 4 }, { from: { next_offset: 0 }, to: 0 }]));
  assert.ok(changesSomething([{ from: 4, to: 4 }, { from: 4, to: 5 }]));
  assert.ok(changesSomething([{ from: null, to: 0 }]), "nobody ever took it: it is written");
});

test("weights", () => {
  assert.deepEqual(parseWeights(""), {});
  assert.deepEqual(parseWeights("7=5, a=b=2\n9= 1,"), { 7: 5, "a=b": 2, 9: 1 });
  for (const wrong of ["7", "7=0", "7=-1", "=3", "7=x"]) {
    assert.throws(() => parseWeights(wrong), /PARTITION=WEIGHT/);
  }
});
