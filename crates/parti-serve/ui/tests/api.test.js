// Requests, with a server that is made here.

import assert from "node:assert/strict";
import test from "node:test";
import { Api } from "../api.js";

/** A server that answers nothing until the request is given up. */
const mute = (_, { signal }) =>
  new Promise((_, fail) => signal.addEventListener("abort", () => fail(signal.reason)));

test("what is not answered in time says that it may have been done", async (context) => {
  context.mock.method(globalThis, "fetch", mute);
  // A timer of a signal alone keeps no process alive.
  const alive = setTimeout(() => {}, 60_000);
  await assert.rejects(new Api().post("/v1/x", {}, 5), /Whether it was done is not known/);
  clearTimeout(alive);
});

test("what else goes wrong is told as it is", async (context) => {
  context.mock.method(globalThis, "fetch", () => Promise.reject(new TypeError("network")));
  await assert.rejects(new Api().post("/v1/x", {}), /network/);
});
