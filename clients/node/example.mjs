// Consumes a topic, and prints a JSON line for everything that happens.
//
//   node example.mjs http://127.0.0.1:7070 billing orders

import { consume } from "./parti.mjs";

const [url, group, topic] = process.argv.slice(2);
const say = (event, data) => console.log(JSON.stringify({ event, ...data }));
const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());
process.on("SIGINT", () => stop.abort());
const token = process.env.PARTI_TOKEN;

await consume({ url, group, topic, token, onEvent: say }, async (message) => {
  const { partition, offset, epoch, payload } = message;
  say("message", { partition, offset, epoch, payload });
}, stop.signal);
