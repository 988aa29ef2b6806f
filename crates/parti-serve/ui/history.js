// What the page remembers: rates and lag over time, handoffs it watched or was told of, rebalances.
// Pure: the time is an argument.

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
 * `null`. What was under way when the page began to look took longer than it saw.
 */
export class HandoffWatch {
  constructor() {
    this.under = new Map();
    /** Oldest first: `{ partition, from, to, took, whole, outcome: "done" | "withdrawn" }`. */
    this.finished = [];
    /** Whether nothing is known of what is under way. */
    this.blind = true;
  }

  /** From now on nothing is seen: what ends meanwhile ends at a time that nobody here knows. */
  lost() {
    this.under.clear();
    this.blind = true;
  }

  /** Takes all handoffs under way, and the changes of owner `[id, from, to]` since last time. */
  look(handoffs, moves, ownerOf, now) {
    const whole = !this.blind;
    this.blind = false;
    const seen = new Set();
    for (const { partition, from, to, stage } of handoffs) {
      seen.add(partition);
      const known = this.under.get(partition);
      if (known && known.to === to) {
        if (known.stage !== stage) Object.assign(known, { stage, since: now });
      } else {
        this.under.set(partition, { partition, from, to, stage, begun: now, since: now, whole });
      }
    }
    for (const [partition, handoff] of this.under) {
      if (seen.has(partition)) continue;
      this.under.delete(partition);
      const outcome = ownerOf(partition) === handoff.to ? "done" : "withdrawn";
      seen.add(partition);
      this.#finish({ ...handoff, took: now - handoff.begun, outcome });
    }
    if (!whole) return;
    for (const [partition, from, to] of moves) {
      if (seen.has(partition) || from === null || to === null) continue;
      this.#finish({ partition, from, to, took: null, whole, outcome: "done" });
    }
  }

  #finish({ partition, from, to, took, whole, outcome }) {
    this.finished.push({ partition, from, to, took, whole, outcome });
    if (this.finished.length > FINISHED_KEPT) this.finished.shift();
  }
}

/** How many lines about handoffs are counted. */
const TIMES_KEPT = 200;

/**
 * How long handoffs took, and for how long nobody served meanwhile, as their leader measured it and
 * wrote it into the history: a line for all that ended together, with the longest of them.
 */
export class HandoffTimes {
  constructor() {
    /** Oldest first: `{ at, moved, took, pause }`. */
    this.list = [];
    this.#last = -Infinity;
  }

  #last;

  /** Takes events, oldest first. Those that were seen before do not count again. */
  events(events) {
    for (const { n, at_ms: at, moves } of events) {
      if (n <= this.#last) continue;
      this.#last = n;
      if (!moves) continue;
      const { count: moved, took_ms: took, pause_ms: pause } = moves;
      this.list.push({ at, moved, took, pause });
      if (this.list.length > TIMES_KEPT) this.list.shift();
    }
  }

  /** All of them in short; `null` of none. Half of what moved took no longer than `half`. */
  summary() {
    if (this.list.length === 0) return null;
    const of = (key) => {
      const all = this.list.map((one) => [one[key], one.moved]);
      return { half: quantile(all, 0.5), longest: quantile(all, 1) };
    };
    const moved = this.list.reduce((sum, one) => sum + one.moved, 0);
    return { moved, since: this.list[0].at, took: of("took"), pause: of("pause") };
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

/** The value below which so many of all lie, of `[value, how often]`; `null` of none. */
export function quantile(values, part) {
  const sorted = [...values].sort(([a], [b]) => a - b);
  const all = sorted.reduce((sum, [, often]) => sum + often, 0);
  let below = 0;
  for (const [value, often] of sorted) {
    below += often;
    if (below > part * all) return value;
  }
  return sorted.at(-1)?.[0] ?? null;
}
