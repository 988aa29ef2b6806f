// What the page remembers: rates and lag over time, handoffs it watched, rebalances. Pure: the
// time is an argument.

/** Values at regular moments, the newest last, at most so many. */
export class Series {
  constructor(size = 300) {
    this.size = size;
    this.times = [];
    this.values = [];
  }

  push(at, value) {
    this.times.push(at);
    this.values.push(value);
    if (this.times.length > this.size) {
      this.times.shift();
      this.values.shift();
    }
  }

  last() {
    return this.values.at(-1) ?? null;
  }
}

/** How fast a counter grows, from looks at it that are not evenly spaced. */
export class Meter {
  #at = null;
  #value = 0;

  /** The growth a second since the last look; `null` at the first one, and after a gap. */
  look(at, value, gapMs = 5000) {
    const [since, grown] = [this.#at === null ? null : at - this.#at, value - this.#value];
    this.#at = at;
    this.#value = value;
    if (since === null || since <= 0 || since > gapMs) return null;
    return (grown * 1000) / since;
  }
}

/** How many finished handoffs are kept. */
const FINISHED_KEPT = 200;

/**
 * Handoffs as seen from here: when each began, when it reached its stage, how it ended. What is
 * shorter than the time between two updates is seen only as a change of owner: its length is
 * `null`.
 */
export class HandoffWatch {
  constructor() {
    this.under = new Map();
    /** Oldest first: `{ partition, from, to, at, took, outcome: "done" | "withdrawn" }`. */
    this.finished = [];
  }

  /** Takes all handoffs under way, and the changes of owner `[id, from, to]` since last time. */
  look(handoffs, moves, ownerOf, now) {
    const seen = new Set();
    for (const { partition, from, to, stage } of handoffs) {
      seen.add(partition);
      const known = this.under.get(partition);
      if (known && known.to === to) {
        if (known.stage !== stage) Object.assign(known, { stage, since: now });
      } else {
        this.under.set(partition, { partition, from, to, stage, begun: now, since: now });
      }
    }
    for (const [partition, handoff] of this.under) {
      if (seen.has(partition)) continue;
      this.under.delete(partition);
      const outcome = ownerOf(partition) === handoff.to ? "done" : "withdrawn";
      seen.add(partition);
      this.#finish({ ...handoff, at: now, took: now - handoff.begun, outcome });
    }
    for (const [partition, from, to] of moves) {
      if (seen.has(partition) || from === null || to === null) continue;
      this.#finish({ partition, from, to, at: now, took: null, outcome: "done" });
    }
  }

  #finish({ partition, from, to, at, took, outcome }) {
    this.finished.push({ partition, from, to, at, took, outcome });
    if (this.finished.length > FINISHED_KEPT) this.finished.shift();
  }
}

const PLANNED = /^(.*): (?:(\d+) partitions? placed)?(?:, )?(?:(\d+) moves? begun)?$/s;

/** How many rebalances are kept. */
const REBALANCES_KEPT = 100;
/** A plan and its event are written by different clocks: so close, they are one. */
const SAME_MS = 2000;

/**
 * Rebalances, from the history's events (plans, and the handoffs that follow them) and from what
 * the leader says that it is doing (its state, with the time when it began).
 */
export class Rebalances {
  constructor() {
    /** Oldest first: `{ start, end, state, reason, placed, moves }`; without end: under way. */
    this.list = [];
    this.#lastEvent = -Infinity;
    this.#open = null;
  }

  #lastEvent;
  #open;

  /** Takes events, oldest first. Those that were seen before do not count again. */
  events(events) {
    for (const event of events) {
      if (event.n <= this.#lastEvent) continue;
      this.#lastEvent = event.n;
      if (event.kind === "plan") this.#planned(event);
      else if (event.kind === "handoff") this.#moved(event);
    }
  }

  /** Takes the leader's plan as it is now. */
  plan(plan) {
    if (!plan) return;
    const { state, reason, started_ms: start } = plan;
    if (state === "stable") {
      if (this.#open) {
        this.#open.end = Math.max(this.#open.start, start);
        this.#open = null;
      }
      return;
    }
    if (this.#open) {
      // One after another without a rest is one rebalance, with its newest reason.
      Object.assign(this.#open, { state, reason });
      return;
    }
    const last = this.list.at(-1);
    if (last && last.start >= start - SAME_MS) {
      this.#open = Object.assign(last, { state, reason, end: null });
    } else {
      this.#open = this.#add({ start, end: null, state, reason, placed: 0, moves: 0 });
    }
  }

  #planned({ at_ms: at, text }) {
    const [, reason, placed, moves] = PLANNED.exec(text) ?? [null, text];
    const counts = { placed: Number(placed ?? 0), moves: Number(moves ?? 0) };
    if (this.#open) {
      this.#open.placed += counts.placed;
      this.#open.moves += counts.moves;
      return;
    }
    const last = this.list.at(-1);
    if (last && last.state !== "planned" && Math.abs(at - last.start) < SAME_MS) {
      Object.assign(last, counts);
      return;
    }
    this.#add({ start: at, end: at, state: "planned", reason, ...counts });
  }

  #moved({ at_ms: at }) {
    const last = this.list.at(-1);
    if (last && last !== this.#open && last.state === "planned" && last.moves > 0) {
      last.end = Math.max(last.end, at);
    }
  }

  #add(rebalance) {
    this.list.push(rebalance);
    if (this.list.length > REBALANCES_KEPT) this.list.shift();
    return rebalance;
  }
}

/** The value below which so many of all lie; `null` of none. */
export function quantile(values, part) {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];
}
