// The stream and its reconnects, with streams made here.

import assert from "node:assert/strict";
import test from "node:test";
import { ApiError } from "../api.js";
import { Live, isFinal, pause } from "../live.js";

test("pauses grow to a bound, with a random part", () => {
  const longest = (tries) => pause(tries, () => 1);
  assert.deepEqual([0, 1, 2, 3].map(longest), [500, 1000, 2000, 4000]);
  assert.equal(longest(20), 15_000);
  assert.equal(
    pause(0, () => 0),
    250,
  );
});

test("what was refused is not tried again", () => {
  assert.ok(isFinal(new ApiError(401)));
  assert.ok(isFinal(new ApiError(404)));
  assert.ok(!isFinal(new ApiError(503)));
  assert.ok(!isFinal(new TypeError("network")));
});

/** A stream of these texts, cut into pieces that split characters. */
function stream(text) {
  const bytes = new TextEncoder().encode(text);
  return new ReadableStream({
    start(controller) {
      for (let at = 0; at < bytes.length; at += 3) controller.enqueue(bytes.slice(at, at + 3));
      controller.close();
    },
  });
}

const GROUP = 'event: group\ndata: {"group":"ü😀"}\n\n';

/** Follows until something is told that ends it. */
function follow(opens, isLast) {
  return new Promise((done) => {
    const told = [];
    const tell = (entry) => {
      told.push(entry);
      if (isLast(entry)) {
        live.close();
        done(told);
      }
    };
    const live = new Live(async () => opens.shift()(), {
      event: (event, data) => tell([event, data]),
      state: ({ name, why }) => setTimeout(() => tell([name, why])),
    });
  });
}

test("events are told, and the stream is opened again when it ends", async () => {
  const opens = [
    () =>
      stream(`${GROUP}event: change\ndata: {"n":1}\n\nevent: end\ndata: {"why":"stopping"}\n\n`),
    () => Promise.reject(new TypeError("network")),
    () => stream(GROUP.replace("ü😀", "again")),
  ];
  const told = await follow(opens, ([, data]) => data?.group === "again");
  const names = told.map(([name]) => name);
  assert.deepEqual(told.find(([name]) => name === "group")[1], { group: "ü😀" });
  assert.deepEqual(told.find(([name]) => name === "change")[1], { n: 1 });
  assert.deepEqual(
    told.filter(([name]) => name === "waiting").map(([, why]) => why),
    ["stopping", "the server cannot be reached"],
  );
  assert.ok(names.includes("live"));
});

test("a server that falls silent, or takes a connection and says nothing, is not live", async () => {
  const beats = new TextEncoder();
  const frozen = () =>
    new ReadableStream({ start: (controller) => controller.enqueue(beats.encode(GROUP)) });
  const opens = [frozen, () => new Promise(() => {}), () => stream(GROUP)];
  let heard = 0;
  const told = await new Promise((done) => {
    const told = [];
    const on = {
      event: () => {},
      heard: () => (heard += 1),
      state: ({ name, why }) => {
        told.push(why ? `${name}: ${why}` : name);
        if (told.filter((one) => one === "live").length < 2) return;
        live.close();
        done(told);
      },
    };
    const live = new Live(async () => opens.shift()(), on, 40);
  });
  const silent = "waiting: the server does not answer";
  assert.deepEqual(told, ["connecting", "live", silent, "connecting", silent, "connecting", "live"]);
  assert.ok(heard >= 2);
});

test("a server that does not hear its store is not live until it tells the whole again", async () => {
  const text = `${GROUP}event: trouble\ndata: {"why":"no answer"}\n\n: beat\n\n${GROUP}`;
  const told = await new Promise((done) => {
    const told = [];
    const state = ({ name, why }) => {
      told.push(why ? `${name}: ${why}` : name);
      if (told.length < 4) return;
      live.close();
      done(told);
    };
    const live = new Live(async () => stream(text), { event: () => {}, state });
  });
  assert.deepEqual(told, ["connecting", "live", "blind: no answer", "live"]);
});

test("who rests has no stream, and goes on when woken", async () => {
  const signals = [];
  const bytes = new TextEncoder().encode(GROUP);
  /** Ends as a request does: with its signal. */
  const open = async (signal) => {
    signals.push(signal);
    return new ReadableStream({
      start(controller) {
        controller.enqueue(bytes);
        signal.addEventListener("abort", () => controller.error(new Error("aborted")));
      },
    });
  };
  const told = await new Promise((done) => {
    const told = [];
    const state = ({ name }) => {
      told.push(name);
      if (told.length === 2) live.rest();
      if (name === "resting") {
        live.retry();
        setTimeout(() => live.wake());
      }
      if (told.length < 5) return;
      live.close();
      done(told);
    };
    const live = new Live(open, { event: () => {}, state });
  });
  assert.deepEqual(told, ["connecting", "live", "resting", "connecting", "live"]);
  assert.deepEqual(
    signals.map(({ aborted }) => aborted),
    [true, true],
  );
});

test("a refusal ends it", async () => {
  const opens = [() => Promise.reject(new ApiError(404, { message: "no such group" }))];
  const told = await follow(opens, ([name]) => name === "refused");
  assert.deepEqual(
    told.map(([name]) => name),
    ["connecting", "refused"],
  );
});
