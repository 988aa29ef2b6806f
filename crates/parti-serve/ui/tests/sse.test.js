// The parser of server-sent events, fed in pieces of every size.

import assert from "node:assert/strict";
import test from "node:test";
import { SseParser } from "../sse.js";

const STREAM =
  ': hello\r\n\r\nevent: group\r\ndata: {"a":1}\r\n\r\n' +
  "event: change\ndata: one\ndata:two\nid: 7\nretry: 5\n\n: beat\n\ndata: plain\n\n";
const EVENTS = [
  { event: "group", data: '{"a":1}' },
  { event: "change", data: "one\ntwo" },
  { event: "message", data: "plain" },
];

test("a stream is parsed the same in pieces of any size", () => {
  for (let size = 1; size <= STREAM.length; size += 1) {
    const parser = new SseParser();
    const events = [];
    for (let at = 0; at < STREAM.length; at += size) {
      events.push(...parser.push(STREAM.slice(at, at + size)));
    }
    assert.deepEqual(events, EVENTS, `pieces of ${size}`);
  }
});

test("an event ends with its empty line and no earlier", () => {
  const parser = new SseParser();
  assert.deepEqual(parser.push("event: end\ndata: {}\n"), []);
  assert.deepEqual(parser.push("\n"), [{ event: "end", data: "{}" }]);
  assert.deepEqual(parser.push("event: nothing\n\n"), [], "without data it is no event");
  assert.deepEqual(parser.push("data: x\n\n"), [{ event: "message", data: "x" }]);
});

test("a byte order mark, bare returns and fields without a colon", () => {
  const parser = new SseParser();
  const events = parser.push("\ufeffdata: a\r\rdata\r\r");
  events.push(...parser.push("data: b\n\n"));
  assert.deepEqual(
    events.map(({ data }) => data),
    ["a", "", "b"],
  );
});

test("a message of megabytes in small pieces stays cheap", () => {
  const parser = new SseParser();
  const piece = "x".repeat(1000);
  parser.push("data: ");
  for (let n = 0; n < 4000; n += 1) assert.deepEqual(parser.push(piece), []);
  const [{ data }] = parser.push("\n\n");
  assert.equal(data.length, 4_000_000);
});
