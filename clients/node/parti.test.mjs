// What the client does by itself, with a service that is made here: node --test parti.test.mjs

import assert from "node:assert/strict";
import { createServer } from "node:http";
import test from "node:test";
import { consume } from "./parti.mjs";

/** What does not come within this time never will. */
const patience = { timeout: 60_000 };

/** What is answered unless a test says otherwise, by the end of a path. */
const usual = {
  sessions: { session: "s", token: "t", worker: "w", topic: "t", ttl_ms: 6000 },
  heartbeat: { lease_ms: 6000 },
  messages: (query) => {
    const from = Number(query.get("from"));
    const message = { offset: 0, headers: [], timestamp_ms: 0 };
    return { messages: from === 0 ? [message] : [], next: 1 };
  },
  commits: { results: [{ partition: "0", result: "ok" }] },
  s: {},
};

/** An answer with a status of its own. */
class Refused {
  constructor(status, body) {
    Object.assign(this, { status, body });
  }
}

/** How a stream begins whose session has the partition. */
const held = (epoch) => [
  ["session", { held: [{ partition: "0", epoch }], topic: "t" }],
  ["assigned", { partition: "0", epoch, next_offset: 0 }],
];

/** An instance. `answers` has what a request is answered, by the end of its path: an object, or a
 * function that makes one, or null (503). `streams` are told one after the other: a list of events
 * (or what makes it), after which the stream stays open until `cut`, or null (503). */
async function instance(context, answers, streams) {
  let stream;
  const tell = (event, data) => stream.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  const server = createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, "http://x");
    const what = pathname.split("/").at(-1);
    request.resume();
    const next = what === "events" && streams.shift();
    const events = typeof next === "function" ? next() : next;
    if (events) {
      stream = response.writeHead(200);
      for (const one of events) tell(...one);
      return;
    }
    const answer = what === "events" ? null : { ...usual, ...answers }[what];
    const body = await (typeof answer === "function" ? answer(searchParams, tell) : answer);
    const { status, body: text } = body instanceof Refused ? body : { status: 200, body };
    response.writeHead(text === null ? 503 : status, { "content-type": "application/json" });
    response.end(JSON.stringify(text));
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}`, cut: () => stream.end() };
}

/** Consumes at these instances, with one partition of one message. Resolves to what the client told,
 * once it has told of `last`, or `handler` has called for a stop. */
async function consumed(context, instances, last, handler = () => {}) {
  const told = [];
  const stop = new AbortController();
  context.after(() => stop.abort());
  const url = instances.map((one) => one.url).join(",");
  const onEvent = (event, data) => {
    told.push([event, data]);
    if (last(event, data)) stop.abort();
  };
  const handle = (message) => handler(stop, message);
  await consume({ url, group: "g", topic: "t", onEvent }, handle, stop.signal);
  return told;
}

/** The same with one instance, and one stream. */
async function serve(context, answers, last, handler) {
  const one = await instance(context, answers, [held(1)]);
  return await consumed(context, [one], last, handler);
}

const revoke = { partition: "0", epoch: 1, deadline_ms: 0 };

test("a release that fails is sent again until it is heard", patience, async (context) => {
  let releases = 0;
  const told = await serve(
    context,
    {
      commits: (_, tell) => {
        tell("revoke", revoke);
        return { results: [{ partition: "0", result: "ok" }] };
      },
      released: () => ((releases += 1) < 3 ? null : { result: "ok" }),
    },
    (event) => event === "released",
  );
  const events = told.map(([event]) => event);
  assert.deepEqual(events.slice(2), ["revoke", "trouble", "trouble", "released"]);
  assert.equal(releases, 3);
});

test("what is refused is told", patience, async (context) => {
  const results = [{ partition: "0", result: "refused", why: "no such message" }];
  const told = await serve(context, { commits: { results } }, (event) => event === "trouble");
  const trouble = { doing: "commit", partition: "0", why: "no such message" };
  assert.deepEqual(told.at(-1), ["trouble", trouble]);
});

test("what was let go of in good order is not lost", patience, async (context) => {
  let releasing;
  let beaten;
  const release = new Promise((done) => (releasing = done));
  const told = await serve(
    context,
    {
      // The release overtakes a commit that is on its way, and is answered after it: by the next
      // heartbeat that is known.
      commits: async (_, tell) => {
        tell("revoke", revoke);
        await release;
        return { results: [{ partition: "0", result: "fenced", why: "not held" }] };
      },
      released: async () => {
        releasing();
        await new Promise((beat) => (beaten = beat));
        return { result: "ok" };
      },
      heartbeat: () => {
        beaten?.();
        return { lease_ms: 6000 };
      },
    },
    (event) => event === "released",
  );
  assert.deepEqual(
    told.map(([event]) => event).filter((event) => ["lost", "trouble"].includes(event)),
    [],
  );
});

test("who leaves stays alive until what is under way is committed", patience, async (context) => {
  const asked = [];
  let stopped = false;
  let done;
  const said = (what, answer) => () => {
    if (stopped) asked.push(what);
    // Three of them come in a TTL: without them, others would have begun the same long ago.
    if (asked.length === 9) done();
    return answer;
  };
  await serve(
    context,
    {
      sessions: { session: "s", token: "t", worker: "w", topic: "t", ttl_ms: 120 },
      heartbeat: said("heartbeat", { lease_ms: 6000 }),
      commits: said("commit", { results: [{ partition: "0", result: "ok" }] }),
      s: said("leave", {}),
    },
    () => false,
    async (stop) => {
      const handled = new Promise((end) => (done = end));
      stopped = true;
      stop.abort();
      await handled;
    },
  );
  assert.deepEqual(asked.slice(0, 9), Array(9).fill("heartbeat"));
  assert.deepEqual(asked.slice(9).filter((what) => what !== "heartbeat"), ["commit", "leave"]);
});

test("somebody else's answer is a failure like others", patience, async (context) => {
  const message = { offset: 0, headers: [], timestamp_ms: 0 };
  const foreign = {
    sessions: [[], { ...usual.sessions, ttl_ms: null }],
    heartbeat: [{}, { lease_ms: "6000" }, new Refused(502, { error: null })],
    messages: [{}, { messages: {}, next: 1 }, { messages: [{ ...message, offset: null }], next: 1 }],
    commits: [{}, { results: [] }, new Refused(502, { error: "Bad Gateway" })],
  };
  const answers = Object.entries(foreign).map(([what, bodies]) => {
    const left = [...bodies];
    const good = usual[what];
    const answer = (query) => {
      if (left.length) return left.shift();
      return typeof good === "function" ? good(query) : good;
    };
    return [what, answer];
  });
  const troubles = [];
  let handled = 0;
  await serve(
    context,
    Object.fromEntries(answers),
    (event, data) => {
      if (event === "trouble") troubles.push(data);
      return troubles.filter((one) => one.doing === "commit").length === 3;
    },
    () => (handled += 1),
  );
  assert.equal(handled, 1);
  assert.deepEqual(troubles.map((one) => one.doing).sort(), [
    ...Array(3).fill("commit"),
    ...Array(3).fill("fetch"),
    ...Array(3).fill("heartbeat"),
    ...Array(2).fill("register"),
  ]);
  const gateways = troubles.filter(({ why }) => why.includes("the service answered 502"));
  assert.deepEqual(gateways.map((one) => one.doing), ["heartbeat", "commit"]);
});

test("an instance that the session has left is not believed", patience, async (context) => {
  let end = 3;
  const waiting = [];
  const grow = (to) => {
    end = to;
    waiting.splice(0).forEach((go) => go());
  };
  const messages = async (query) => {
    const from = Number(query.get("from"));
    while (from >= end) await new Promise((go) => waiting.push(go));
    return { messages: [{ offset: from, headers: [], timestamp_ms: 0 }], next: from + 1 };
  };
  // Nothing else ends a stream here.
  const answers = { messages, sessions: { ...usual.sessions, ttl_ms: 600_000 } };
  const growing = (to, events) => () => {
    grow(to);
    return events;
  };
  // To the other one and back, where nobody has noticed that it was away.
  const a = await instance(context, answers, [held(1), null, held(1), null]);
  const b = await instance(context, answers, [growing(4, held(2)), null, growing(5, held(2))]);
  const handled = [];
  await consumed(context, [a, b], () => false, (stop, { offset, epoch }) => {
    handled.push([offset, epoch]);
    if (handled.length === 3) a.cut();
    if (handled.length === 4) b.cut();
    if (handled.length === 5) stop.abort();
  });
  assert.deepEqual(handled, [[0, 1], [1, 1], [2, 1], [3, 2], [4, 2]]);
});

test("what is under way keeps nobody from hearing what is told", patience, async (context) => {
  let done;
  const long = new Promise((end) => (done = end));
  const handled = [];
  const another = ["assigned", { partition: "1", epoch: 1, next_offset: 1 }];
  const a = await instance(context, {}, [held(1), null]);
  const b = await instance(context, {
    messages: (query) => {
      const from = Number(query.get("from"));
      return { messages: from < 2 ? [{ offset: from, headers: [], timestamp_ms: 0 }] : [], next: 2 };
    },
  }, [[...held(2), another]]);
  const told = (event, { partition }) => {
    if (event === "assigned" && partition === "1") done();
  };
  await consumed(context, [a, b], told, async (stop, { partition, offset, epoch }) => {
    if (epoch === 1 && partition === "0") {
      a.cut();
      await long;
    }
    handled.push([partition, offset, epoch]);
    if (handled.length === 3) stop.abort();
  });
  // It is not handled again, and nothing of its partition beside it.
  const mine = handled.filter(([partition]) => partition === "0");
  assert.deepEqual(mine, [["0", 0, 1], ["0", 1, 2]]);
});

const wrongHost = new Refused(421, { error: { code: "wrong_host", message: "not that name" } });

test("a wrong name is final only where there is no other instance", patience, async (context) => {
  const wrong = await instance(context, { sessions: wrongHost }, []);
  const right = await instance(context, {}, [held(1)]);
  await assert.rejects(consumed(context, [wrong], () => false), { code: "wrong_host" });
  const told = await consumed(context, [wrong, right], (event) => event === "assigned");
  assert.deepEqual(told.map(([event]) => event), ["trouble", "registered", "assigned"]);
});

test("what a stream that is left was refused is not final", patience, async (context) => {
  let left;
  const leaving = new Promise((done) => (left = done));
  const messages = async () => {
    a.cut();
    await leaving;
    return new Refused(404, { error: { code: "not_found", message: "no such topic" } });
  };
  const a = await instance(context, { messages }, [held(1), () => (left(), null)]);
  const b = await instance(context, {}, [held(2)]);
  const handled = [];
  await consumed(context, [a, b], () => false, (stop, { offset, epoch }) => {
    handled.push([offset, epoch]);
    stop.abort();
  });
  assert.deepEqual(handled, [[0, 2]]);
});

/** What is asked, but for heartbeats, after a stop in the midst of the only message. */
async function stopped(context, commits, others = []) {
  const asked = [];
  const leaving = [];
  const said = (what, answer) => () => {
    if (!leaving.length) return usual[what];
    asked.push(what);
    return answer();
  };
  const answers = { commits: said("commits", () => commits.shift()), s: said("s", () => ({})) };
  const one = await instance(context, answers, [held(1)]);
  const told = await consumed(context, [one, ...others], () => false, (stop) => {
    leaving.push(true);
    stop.abort();
  });
  return [asked, told.filter(([event]) => event === "trouble").map(([, { doing }]) => doing)];
}

test("a commit that fails at the end is sent again", patience, async (context) => {
  assert.deepEqual(
    await stopped(context, [null, {}, usual.commits]),
    [["commits", "commits", "commits", "s"], ["commit", "commit"]],
  );
});

test("a session that is over takes nothing more", patience, async (context) => {
  const over = new Refused(410, { error: { code: "session_gone", message: "over" } });
  assert.deepEqual(await stopped(context, [over]), [["commits", "s"], ["commit"]]);
});

test("it is committed where the session is", patience, async (context) => {
  const elsewhere = new Refused(421, { error: { code: "not_here", message: "not here" } });
  const asked = [];
  const said = (what) => () => (asked.push(what), usual[what]);
  const other = await instance(context, { commits: said("commits"), s: said("s") }, []);
  // What is answered 421 `fetch` itself asks once more, on another connection.
  const [before, troubles] = await stopped(context, [elsewhere, elsewhere], [other]);
  assert.deepEqual([before.includes("s"), troubles], [false, ["commit"]]);
  assert.deepEqual(asked, ["commits", "s"]);
});
