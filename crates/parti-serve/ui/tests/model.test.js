// The group as the stream tells it.

import assert from "node:assert/strict";
import test from "node:test";
import {
  EVENTS_KEPT,
  GroupModel,
  arrange,
  endOf,
  healthOf,
  nextOwner,
  stateOf,
  statusOf,
  totals,
} from "../model.js";
import { group, partition, worker } from "./fixtures.js";

test("the whole group is taken, in order", () => {
  const model = new GroupModel();
  assert.deepEqual(model.replace(group()), []);
  assert.deepEqual([...model.workers.keys()], ["w-2", "w-10"]);
  assert.deepEqual(
    model.partitions.map(({ partition }) => partition),
    ["9", "10", "a"],
  );
  assert.equal(model.head.group, "g");
  assert.equal(model.head.workers, undefined);
  assert.equal(model.partition("10").owner, "w-2");
  assert.equal(model.partition("nobody knows"), null);
});

test("a change is merged, and changes of owner are told", () => {
  const model = new GroupModel();
  model.replace(group());
  const before = { ...model.version };
  const moves = model.change({
    head: { group: "g", leader: "w-2", term: 2 },
    workers: [worker("w-3"), worker("w-2", { beat: 2 })],
    workers_gone: ["w-10"],
    partitions: [partition("9", "w-3", { epoch: 2 }), partition("11", "w-3")],
    partitions_gone: ["a"],
    events: [{ n: 2, at_ms: 2, kind: "plan", text: "" }],
  });
  assert.deepEqual(moves, [["9", "w-10", "w-3"]]);
  assert.deepEqual([...model.workers.keys()], ["w-2", "w-3"]);
  assert.equal(model.workers.get("w-2").beat, 2);
  assert.deepEqual(
    model.partitions.map(({ partition }) => partition),
    ["9", "10", "11"],
  );
  assert.equal(model.indexOf("11"), 2);
  assert.equal(model.head.term, 2);
  assert.deepEqual(model.handoffs, [], "absent means unchanged");
  assert.ok(model.version.structure > before.structure);
  assert.ok(model.version.owners > before.owners);
  assert.ok(model.version.events > before.events);
});

test("records that cannot be read come and go with changes", () => {
  const model = new GroupModel();
  model.replace(group());
  const broken = [{ key: "workers/g/worker-1", why: "no JSON" }];
  model.change({ unreadable: broken });
  model.change({ workers: [worker("w-2")] });
  assert.deepEqual(model.unreadable, broken, "absent means unchanged");
  model.change({ unreadable: [] });
  assert.deepEqual(model.unreadable, []);
});

test("a change of lag alone is no change of structure or owners", () => {
  const model = new GroupModel();
  model.replace(group());
  const before = { ...model.version };
  model.change({ partitions: [partition("9", "w-10", { lag: 7 })] });
  assert.deepEqual(model.version, before);
  assert.equal(model.partition("9").lag, 7);
});

test("progress counts within an epoch: a reset is none", () => {
  const model = new GroupModel();
  model.replace(group());
  model.change({ partitions: [partition("9", "w-10", { next_offset: 25, end: 40 })] });
  model.change({ partitions: [partition("9", "w-10", { next_offset: 900, epoch: 2, end: 41 })] });
  model.change({ partitions: [partition("9", "w-10", { next_offset: 5, epoch: 2, end: 41 })] });
  assert.equal(model.progress.done, 15);
  assert.equal(model.progress.come, 31);
  assert.equal(model.progress.doneBy.get("w-10"), 15);
});

test("a new whole after a reconnect keeps the counters and tells what moved meanwhile", () => {
  const model = new GroupModel();
  model.replace(group());
  const moves = model.replace(
    group({ partitions: [partition("9", "w-2"), partition("10", "w-2", { next_offset: 12 })] }),
  );
  assert.deepEqual(moves, [["9", "w-10", "w-2"]]);
  assert.equal(model.progress.done, 2);
  assert.equal(model.events.length, 1, "events that are known are not doubled");
});

test("events stay in order, older ones find their place, and their number is bounded", () => {
  const model = new GroupModel();
  const events = (from, to) =>
    Array.from({ length: to - from }, (_, at) => ({
      n: from + at,
      at_ms: 0,
      kind: "plan",
      text: "",
    }));
  model.replace(group({ events: events(500, 700) }));
  model.older(events(400, 520));
  assert.equal(model.events[0].n, 400);
  assert.equal(model.events.length, 300);
  model.change({ events: events(700, 700 + EVENTS_KEPT) });
  assert.equal(model.events.length, EVENTS_KEPT);
  assert.equal(model.events.at(-1).n, 699 + EVENTS_KEPT);
});

test("a partition's status in a word", () => {
  assert.equal(statusOf(partition("1", "w")), "served");
  assert.equal(statusOf(partition("1", null)), "unserved");
  assert.equal(statusOf(partition("1", "w", { owner_session: "over" })), "orphaned");
  assert.equal(statusOf(partition("1", "w", { prepared_by: "v" })), "moving");
  assert.equal(statusOf(partition("1", null, { assigned: "v" })), "moving");
  assert.equal(statusOf(partition("1", null, { paused: true })), "paused");
  assert.equal(statusOf(partition("1", "w", { paused: true })), "pausing");
  assert.equal(nextOwner(partition("1", "w", { assigned: "v" })), "v");
  assert.equal(nextOwner(partition("1", "w", { assigned: null })), null);
});

test("sums over partitions and by owner", () => {
  const model = new GroupModel();
  model.replace(
    group({
      partitions: [
        partition("1", "w-2", { lag: 5 }),
        partition("2", "w-2", { lag: null }),
        partition("3", null, { lag: 2, paused: true }),
        partition("4", null),
        partition("5", "w-10", { prepared_by: "w-2", lag: 1 }),
      ],
    }),
  );
  const { byOwner, ...sums } = totals(model);
  assert.deepEqual(sums, { owned: 3, moving: 1, paused: 1, unserved: 1, lag: 8, maxLag: 5 });
  assert.deepEqual(byOwner.get("w-2"), { partitions: 2, lag: 5 });
  model.replace(group({ partitions: [partition("1", "w-2", { lag: null })] }));
  assert.equal(totals(model).lag, null, "a log that was not asked has no lag");
});

/** What knows of these that they are silent. */
const beats = (silent) => ({ isSilent: ({ worker }) => silent.includes(worker) });

test("a worker's health", () => {
  const word = (more, silent = []) => healthOf(worker("w", more), beats(silent)).word;
  assert.equal(word({}), "stable");
  assert.equal(word({}, ["w"]), "silent");
  assert.equal(word({ renewed_ms: 1 }), "stable", "by its own clock, which may be wrong");
  assert.equal(word({ status: "evicted" }), "evicted");
  assert.equal(word({ status: "leaving" }), "leaving");
  assert.equal(word({ degraded: "why" }), "degraded");
  assert.equal(word({ drained: true }), "drained");
  assert.equal(word({ state: 99 }), "state 99");
});

test("a group that nobody serves is not stable", () => {
  const model = new GroupModel();
  const state = (more, silent = []) => {
    model.replace(group(more));
    return stateOf(model, totals(model), beats(silent));
  };
  const plan = { state: "stable" };
  assert.equal(state({ plan }), "stable");
  assert.equal(state({ plan, workers: [] }), "nobody serves");
  assert.equal(state({ plan, workers: [worker("w", { status: "goodbye" })] }), "nobody serves");
  assert.equal(state({ plan }, ["w-2", "w-10"]), "nobody serves", "all are silent");
  assert.equal(state({ plan }, ["w-2"]), "stable", "one is not");
  assert.equal(state({ plan, workers: [], closed: true }), "closed");
  assert.equal(state({ plan: null }), "no plan");
  assert.equal(state({ plan: null, coordination: "leaderless" }), "stable");
});

test("a partition ends no sooner than it is done", () => {
  assert.equal(endOf(partition("1", "w", { end: 7, next_offset: 9 })), 9);
  assert.equal(endOf(partition("1", "w", { end: 12, next_offset: 9 })), 12);
  assert.equal(endOf(partition("1", null, { end: 12, next_offset: null })), 12);
  assert.equal(endOf(partition("1", "w", { end: null })), null, "the log was not asked");
});

test("the table's order and filters", () => {
  const partitions = [
    partition("1", "w-10", { lag: 5 }),
    partition("2", "w-2", { lag: null }),
    partition("3", null, { lag: 9 }),
    partition("12", "w-2", { lag: 5 }),
  ];
  const ids = (view) => {
    const all = { key: "partition", down: false, text: "", status: "", ...view };
    return arrange(partitions, all).map((index) => partitions[index].partition);
  };
  assert.deepEqual(ids({}), ["1", "2", "3", "12"]);
  assert.deepEqual(ids({ down: true }), ["12", "3", "2", "1"]);
  assert.deepEqual(ids({ key: "lag", down: true }), ["3", "1", "12", "2"], "unknown is last");
  assert.deepEqual(ids({ key: "lag" }), ["1", "12", "3", "2"], "also this way round");
  assert.deepEqual(ids({ key: "owner" }), ["2", "12", "1", "3"]);
  assert.deepEqual(ids({ key: "status" }), ["3", "1", "2", "12"]);
  assert.deepEqual(ids({ text: " W-2 " }), ["2", "12"]);
  assert.deepEqual(ids({ text: "1" }), ["1", "12"]);
  assert.deepEqual(ids({ status: "unserved" }), ["3"]);
});
