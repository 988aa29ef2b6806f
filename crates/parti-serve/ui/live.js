// Follows a group: one stream, opened again with growing pauses when it breaks.
//
//   connecting ─▶ live ─▶ waiting ─▶ connecting …      refused: only a person can help

import { SseParser } from "./sse.js";

/** The server says something at least every 15 seconds. */
const SILENCE_MS = 40_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
/** To read a message of this size, and to take it in, is a task each: the browser gets to paint. */
const LARGE = 64 * 1024;

/** How long to wait before the next try: doubles, with a random part so that tabs spread out. */
export function pause(tries, random = Math.random) {
  const full = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(tries, 10));
  return Math.round(full / 2 + (full / 2) * random());
}

/** Whether to try again after this failure: what the server refused, it refuses again. */
export function isFinal(error) {
  return [400, 401, 403, 404, 410].includes(error.status);
}

export class Live {
  #open;
  #on;
  #abort = null;
  #timer = null;
  #tries = 0;
  #closed = false;

  /**
   * `open(signal)` gives a stream of bytes. `on.event(name, data)` is told of each event,
   * `on.state` of `{ name: "connecting" | "live" | "waiting" | "refused", … }`.
   */
  constructor(open, on) {
    this.#open = open;
    this.#on = on;
    this.#run();
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#abort?.abort();
  }

  /** Tries now instead of later. */
  retry() {
    if (this.#closed || this.#abort) return;
    clearTimeout(this.#timer);
    this.#run();
  }

  async #run() {
    const abort = new AbortController();
    this.#abort = abort;
    this.#on.state({ name: "connecting", tries: this.#tries });
    let why = "the connection ended";
    let error = null;
    try {
      why = (await this.#follow(abort)) ?? why;
    } catch (thrown) {
      error = thrown;
      why = thrown.status ? thrown.message : "the server cannot be reached";
    }
    this.#abort = null;
    abort.abort();
    if (this.#closed) return;
    if (error && isFinal(error)) {
      this.#on.state({ name: "refused", error });
      return;
    }
    const wait = pause(this.#tries);
    this.#tries += 1;
    this.#on.state({ name: "waiting", why, until: Date.now() + wait, tries: this.#tries });
    this.#timer = setTimeout(() => this.#run(), wait);
  }

  /** Reads until the end; gives the server's reason for it, if it told one. */
  async #follow(abort) {
    const reader = (await this.#open(abort.signal)).getReader();
    const [parser, decoder] = [new SseParser(), new TextDecoder()];
    let heard = Date.now();
    const watch = setInterval(() => {
      if (Date.now() - heard > SILENCE_MS) abort.abort();
    }, 5000);
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done || this.#closed) return null;
        heard = Date.now();
        for (const { event, data } of parser.push(decoder.decode(value, { stream: true }))) {
          const told = JSON.parse(data);
          if (data.length > LARGE) await breath();
          if (this.#closed) return null;
          if (event === "end") return told.why;
          if (this.#tries > 0 || event === "group") this.#tries = 0;
          this.#on.event(event, told);
          if (event === "group") this.#on.state({ name: "live" });
          if (data.length > LARGE) await breath();
        }
      }
    } finally {
      clearInterval(watch);
    }
  }
}

/** Ends the present task of the main thread. */
function breath() {
  return new Promise((go) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      go();
    };
    port2.postMessage(null);
  });
}
