// Follows a group: one stream, opened again with growing pauses when it breaks.
//
//   connecting ─▶ live ─▶ waiting ─▶ connecting …      refused: only a person can help
//                  └─ rest ─▶ resting ─ wake ─▶ connecting …

import { SseParser } from "./sse.js";

/** The server says something at least every 3 seconds: what says nothing for so long is frozen, or
 * out of reach. */
const SILENCE_MS = 8000;
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

/** Nothing came, though there should have been something. */
class Silence extends Error {}

export class Live {
  #open;
  #on;
  #silence;
  #abort = null;
  #timer = null;
  #tries = 0;
  #closed = false;
  #resting = false;

  /**
   * `open(signal)` gives a stream of bytes. `on.event(name, data)` is told of each event,
   * `on.state` of `{ name: "connecting" | "live" | "blind" | "waiting" | "refused" | "resting", … }`
   * (blind: the server does not hear its store), `on.heard` of every sign of life.
   */
  constructor(open, on, silence = SILENCE_MS) {
    this.#open = open;
    this.#on = on;
    this.#silence = silence;
    this.#run();
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#abort?.abort();
  }

  /** Closes the stream: nobody looks. A browser has few connections for all tabs of a server. */
  rest() {
    if (this.#closed || this.#resting) return;
    this.#resting = true;
    clearTimeout(this.#timer);
    this.#abort?.abort();
    if (!this.#abort) this.#on.state({ name: "resting" });
  }

  /** Goes on after a rest. */
  wake() {
    if (!this.#resting) return;
    this.#resting = false;
    this.retry();
  }

  /** Tries now instead of later. */
  retry() {
    if (this.#closed || this.#resting || this.#abort) return;
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
      if (thrown instanceof Silence) why = "the server does not answer";
    }
    this.#abort = null;
    abort.abort();
    if (this.#closed) return;
    if (this.#resting) {
      this.#on.state({ name: "resting" });
      return;
    }
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
    let heard = Date.now();
    let watch;
    // Also before the first word: a frozen server's kernel takes connections, and answers nothing.
    const silent = new Promise((_, fail) => {
      watch = setInterval(() => {
        if (Date.now() - heard > this.#silence) fail(new Silence());
      }, this.#silence / 8);
    });
    try {
      const reader = (await Promise.race([this.#open(abort.signal), silent])).getReader();
      const [parser, decoder] = [new SseParser(), new TextDecoder()];
      for (;;) {
        const { done, value } = await Promise.race([reader.read(), silent]);
        if (done || this.#closed) return null;
        heard = Date.now();
        this.#on.heard?.();
        for (const { event, data } of parser.push(decoder.decode(value, { stream: true }))) {
          const told = JSON.parse(data);
          if (data.length > LARGE) await breath();
          if (this.#closed) return null;
          if (event === "end") return told.why;
          if (this.#tries > 0 || event === "group") this.#tries = 0;
          this.#on.event(event, told);
          if (event === "group") this.#on.state({ name: "live" });
          if (event === "trouble") this.#on.state({ name: "blind", why: told.why });
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
