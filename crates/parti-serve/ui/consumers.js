// Which consumer is behind a worker: the names and the metadata that consumers over HTTP registered
// with, as far as the instance that serves this page holds their sessions. The time is an argument.
//
//   workers, as they change ─▶ is there a life that was not asked about? ─▶ ask, now and then ─▶ names
//
// The list of sessions costs the server a look at the whole group, so nobody asks without a cause.

/** The shortest time between two questions. */
const EVERY_MS = 5000;
/** A life is in the store before its session is in the list: once may be too early. */
const TRIES = 2;

const lifeOf = ({ worker, incarnation }) => `${worker}.${incarnation}`;

export class Consumers {
  #ask;
  #told;
  #known = new Map(); // session, which is a life of a worker, to what it registered with
  #tries = new Map();
  #asked = -Infinity;
  #busy = false;

  /** `ask()` gets the list of sessions; `told()` is called when it was another one. */
  constructor(ask, told) {
    this.#ask = ask;
    this.#told = told;
  }

  /** What is known of a worker's consumer: `{ consumer, metadata }`, or `null`. */
  of(worker) {
    return this.#known.get(lifeOf(worker)) ?? null;
  }

  /** Somebody wants to know it of this one: it is asked about again. */
  want(worker) {
    this.#tries.delete(lifeOf(worker));
  }

  /** Takes all workers as they are now. Resolves once there is nothing to wait for. */
  async look(workers, now) {
    if (this.#busy || now - this.#asked < EVERY_MS) return;
    const lives = [...workers].map(lifeOf);
    const open = lives.filter(
      (life) => !this.#known.has(life) && (this.#tries.get(life) ?? 0) < TRIES,
    );
    if (open.length === 0) return;
    this.#asked = now;
    this.#busy = true;
    try {
      const { sessions } = await this.#ask();
      const there = new Set(lives);
      for (const kept of [this.#known, this.#tries]) {
        for (const life of [...kept.keys()]) if (!there.has(life)) kept.delete(life);
      }
      for (const life of open) this.#tries.set(life, (this.#tries.get(life) ?? 0) + 1);
      for (const { session, consumer, metadata } of sessions) {
        this.#known.set(session, { consumer, metadata });
      }
      if (sessions.length > 0) this.#told();
    } catch {
      // Names are an addition: what is wrong with the server, the page says elsewhere.
    } finally {
      this.#busy = false;
    }
  }
}

/** Metadata in a line; empty of none. */
export function metadataText(metadata) {
  const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const entries = Object.entries(metadata ?? {});
  return entries.map(([key, value]) => `${key}: ${text(value)}`).join(" · ");
}
