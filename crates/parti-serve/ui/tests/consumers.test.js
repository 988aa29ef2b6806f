// Names of consumers, and when they are asked for.

import assert from "node:assert/strict";
import test from "node:test";
import { Consumers, metadataText } from "../consumers.js";
import { worker } from "./fixtures.js";

/** Consumers of a server that holds these sessions; how often it was asked, and the page told. */
function server(...sessions) {
  const seen = { asked: 0, told: 0, sessions };
  const ask = async () => {
    seen.asked += 1;
    if (seen.sessions === null) throw new Error("no answer");
    return { sessions: seen.sessions };
  };
  return [new Consumers(ask, () => (seen.told += 1)), seen];
}

const session = (id, consumer, metadata = {}) => ({ session: id, consumer, metadata });

test("a consumer is known by the life of its worker", async () => {
  const [consumers, seen] = server(session("w-1.5", "billing", { host: "a" }));
  await consumers.look([worker("w-1")], 0);
  assert.deepEqual(consumers.of(worker("w-1")), { consumer: "billing", metadata: { host: "a" } });
  assert.equal(consumers.of(worker("w-1", { incarnation: 6 })), null, "that is somebody else");
  assert.equal(consumers.of(worker("w-2")), null);
  assert.equal(seen.told, 1);
});

test("nobody asks without a cause, nor all the time", async () => {
  const [consumers, seen] = server();
  const all = [worker("w-1")];
  await consumers.look(all, 0);
  await consumers.look(all, 4999);
  assert.equal(seen.asked, 1);
  // It may have been asked before the session was in the list.
  seen.sessions = [session("w-1.5", "billing")];
  await consumers.look(all, 5000);
  assert.equal(consumers.of(all[0]).consumer, "billing");
  // All are known; then one comes that is no consumer over HTTP, or is one elsewhere.
  await consumers.look(all, 20_000);
  assert.equal(seen.asked, 2);
  all.push(worker("w-2"));
  for (const now of [30_000, 40_000, 50_000, 60_000]) await consumers.look(all, now);
  assert.equal(seen.asked, 4);
  // A person asks for it.
  consumers.want(all[1]);
  await consumers.look(all, 70_000);
  assert.equal(seen.asked, 5);
});

test("an answer that does not come is asked for again, and names stay", async () => {
  const [consumers, seen] = server(session("w-1.5", "billing"));
  await consumers.look([worker("w-1")], 0);
  seen.sessions = null;
  const all = [worker("w-1"), worker("w-2")];
  for (const now of [10_000, 20_000, 30_000]) await consumers.look(all, now);
  assert.equal(seen.asked, 4);
  assert.equal(consumers.of(all[0]).consumer, "billing");
  seen.sessions = [session("w-2.5", "mail")];
  await consumers.look(all, 40_000);
  assert.equal(consumers.of(all[1]).consumer, "mail");
  assert.equal(consumers.of(all[0]).consumer, "billing", "its session went on elsewhere");
});

test("metadata is a line of text", () => {
  assert.equal(metadataText({}), "");
  assert.equal(metadataText(undefined), "");
  const metadata = { host: "a", pid: 7, tags: ["x", "<b>"] };
  assert.equal(metadataText(metadata), 'host: a · pid: 7 · tags: ["x","<b>"]');
});
