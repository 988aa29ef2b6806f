// One group as the server tells it: the whole first, then changes. Pure.
//
//   group  ─▶ replace ─┐
//   change ─▶ change ──┴─▶ the group as it is, and counters that tell which part is another one now

import { compareIds, compareNames } from "./format.js";

/** How many events are kept. */
export const EVENTS_KEPT = 1000;

export class GroupModel {
  constructor() {
    this.head = null;
    /** Worker id to worker, in the order of ids. */
    this.workers = new Map();
    /** In the order of ids. */
    this.partitions = [];
    this.handoffs = [];
    this.unreadable = [];
    /** Oldest first. */
    this.events = [];
    /** Grow with every change: of the list of partitions, of an owner, of the events. */
    this.version = { structure: 0, owners: 0, events: 0 };
    /** Offsets done, and messages that came in, since the page was opened. */
    this.progress = { done: 0, come: 0, doneBy: new Map() };
    this.#index = new Map();
  }

  #index;

  /** Takes the whole group. Gives the changes of owner that this shows: `[id, from, to]`. */
  replace(group) {
    const { workers, partitions, handoffs, unreadable, events, ...head } = group;
    const before = this.partitions;
    this.head = head;
    this.workers = new Map(workers.map((worker) => [worker.worker, worker]));
    this.#sortWorkers();
    const moves = this.#replacePartitions(partitions, before);
    this.handoffs = handoffs ?? [];
    this.unreadable = unreadable ?? [];
    this.#addEvents(events ?? []);
    return moves;
  }

  /** Takes a change. Gives the changes of owner in it: `[id, from, to]`. */
  change(change) {
    if (change.head) this.head = change.head;
    this.#changeWorkers(change.workers ?? [], change.workers_gone ?? []);
    const moves = this.#changePartitions(change.partitions ?? [], change.partitions_gone ?? []);
    if (change.handoffs) this.handoffs = change.handoffs;
    if (change.unreadable) this.unreadable = change.unreadable;
    this.#addEvents(change.events ?? []);
    return moves;
  }

  /** Takes events from before those that are known. */
  older(events) {
    this.#addEvents(events);
  }

  indexOf(id) {
    return this.#index.get(id) ?? -1;
  }

  partition(id) {
    return this.partitions[this.indexOf(id)] ?? null;
  }

  #sortWorkers() {
    const sorted = [...this.workers].sort((a, b) => compareNames(a[0], b[0]));
    this.workers = new Map(sorted);
  }

  #changeWorkers(changed, gone) {
    let added = false;
    for (const worker of changed) {
      added ||= !this.workers.has(worker.worker);
      this.workers.set(worker.worker, worker);
    }
    for (const id of gone) this.workers.delete(id);
    if (added) this.#sortWorkers();
  }

  #replacePartitions(partitions, before) {
    const known = new Map(before.map((partition) => [partition.partition, partition]));
    this.partitions = [...partitions];
    this.#reindex();
    const moves = [];
    for (const partition of partitions) {
      const old = known.get(partition.partition);
      if (old) this.#note(old, partition, moves);
    }
    return moves;
  }

  #changePartitions(changed, gone) {
    const moves = [];
    let added = false;
    for (const partition of changed) {
      const at = this.#index.get(partition.partition);
      if (at === undefined) {
        this.partitions.push(partition);
        added = true;
        continue;
      }
      this.#note(this.partitions[at], partition, moves);
      this.partitions[at] = partition;
    }
    if (gone.length > 0) {
      const lost = new Set(gone);
      this.partitions = this.partitions.filter(({ partition }) => !lost.has(partition));
    }
    if (added || gone.length > 0) this.#reindex();
    return moves;
  }

  #reindex() {
    this.partitions.sort((a, b) => compareIds(a.partition, b.partition));
    this.#index = new Map(this.partitions.map(({ partition }, at) => [partition, at]));
    this.version.structure += 1;
    this.version.owners += 1;
  }

  /** Counts progress and sees a change of owner. */
  #note(old, now, moves) {
    if (old.owner !== now.owner) {
      moves.push([now.partition, old.owner, now.owner]);
      this.version.owners += 1;
    } else if (now.owner === null && old.assigned !== now.assigned) {
      this.version.owners += 1;
    }
    // Another epoch may be a reset, which is no progress.
    if (old.epoch === now.epoch && old.next_offset !== null && now.next_offset !== null) {
      const done = Math.max(0, now.next_offset - old.next_offset);
      this.progress.done += done;
      if (done > 0 && now.owner !== null) {
        const { doneBy } = this.progress;
        doneBy.set(now.owner, (doneBy.get(now.owner) ?? 0) + done);
      }
    }
    if (typeof old.end === "number" && typeof now.end === "number") {
      this.progress.come += Math.max(0, now.end - old.end);
    }
  }

  #addEvents(events) {
    if (events.length === 0) return;
    const last = this.events.at(-1)?.n ?? -Infinity;
    if (events[0].n > last) {
      this.events.push(...events);
    } else {
      const known = new Set(this.events.map(({ n }) => n));
      this.events.push(...events.filter(({ n }) => !known.has(n)));
      this.events.sort((a, b) => a.n - b.n);
    }
    if (this.events.length > EVENTS_KEPT) {
      this.events.splice(0, this.events.length - EVENTS_KEPT);
    }
    this.version.events += 1;
  }
}

/** Where a partition is to go next, if it is moving. */
export function nextOwner(partition) {
  if (partition.prepared_by) return partition.prepared_by;
  const { assigned, owner } = partition;
  return assigned && assigned !== owner ? assigned : null;
}

/**
 * How a partition fares, in one word: `paused` (or `pausing`, while its owner lets go), `moving`,
 * `unserved` (nobody has it), `orphaned` (its owner's session is over), `served`.
 */
export function statusOf(partition) {
  if (partition.paused) return partition.owner === null ? "paused" : "pausing";
  if (nextOwner(partition) !== null) return "moving";
  if (partition.owner === null) return "unserved";
  return partition.owner_session === "over" ? "orphaned" : "served";
}

/** Sums over all partitions, and by owner. */
export function totals(model) {
  const sum = { owned: 0, moving: 0, paused: 0, unserved: 0, lag: null, maxLag: 0 };
  const byOwner = new Map();
  for (const partition of model.partitions) {
    const status = statusOf(partition);
    if (status === "paused" || status === "pausing") sum.paused += 1;
    else if (status === "moving") sum.moving += 1;
    else if (status !== "served") sum.unserved += 1;
    if (partition.owner !== null) {
      sum.owned += 1;
      let own = byOwner.get(partition.owner);
      if (!own) byOwner.set(partition.owner, (own = { partitions: 0, lag: null }));
      own.partitions += 1;
      if (partition.lag !== null) own.lag = (own.lag ?? 0) + partition.lag;
    }
    if (partition.lag !== null) {
      sum.lag = (sum.lag ?? 0) + partition.lag;
      if (partition.lag > sum.maxLag) sum.maxLag = partition.lag;
    }
  }
  return { ...sum, byOwner };
}

/** What a worker is, in a word, and whether that deserves a look; `beats` know who is silent. */
export function healthOf(worker, beats) {
  if (worker.status === "evicted") return { word: "evicted", good: false };
  if (worker.status === "goodbye") return { word: "left", good: true };
  if (worker.status === "revoked" || worker.status === "dismissed") {
    return { word: "being evicted", good: false };
  }
  if (worker.degraded) return { word: "degraded", good: false };
  if (beats.isSilent(worker)) return { word: "silent", good: false };
  if (worker.status === "leaving") return { word: "leaving", good: true };
  if (worker.drained) return { word: "drained", good: true };
  return { word: STATES[worker.state] ?? `state ${worker.state}`, good: true };
}

/** How the group fares, in a word: what its leader wrote down, unless nobody is there to do it. */
export function stateOf(model, sums, beats) {
  const { head, workers } = model;
  if (head.closed) return "closed";
  const serves = (worker) => isThere(worker) && !beats.isSilent(worker);
  if (![...workers.values()].some(serves)) return "nobody serves";
  if (head.plan?.state) return head.plan.state;
  // Without a leader nobody writes down what goes on.
  if (head.coordination !== "leaderless") return "no plan";
  return sums.moving > 0 ? "rebalancing" : "stable";
}

/** Where a partition ends, as far as it is known: the log is asked less often than progress comes,
 * and whatever is done was there. */
export function endOf({ end, next_offset: next }) {
  if (typeof end !== "number") return end ?? null;
  return Math.max(end, next ?? 0);
}

/** The states of a worker, by number. */
const STATES = [
  "starting",
  "claiming an id",
  "electing",
  "waiting",
  "stable",
  "scaling",
  "rebalancing",
  "emergency",
  "stopping",
];

/** Whether a worker's session can still be acted upon. */
export function isThere(worker) {
  return worker.status === "live" || worker.status === "leaving";
}

/** Those that come first when sorted by status. */
export const STATUSES = ["unserved", "orphaned", "moving", "pausing", "paused", "served"];

/** Puts indices of partitions into an order, and leaves out what is not asked for. */
export function arrange(partitions, { key, down, text, status }) {
  const wanted = text.trim().toLowerCase();
  const matches = (partition) => {
    if (status !== "" && statusOf(partition) !== status) return false;
    if (wanted === "") return true;
    const { partition: id, owner } = partition;
    return id.toLowerCase().includes(wanted) || (owner ?? "").toLowerCase().includes(wanted);
  };
  const found = [];
  partitions.forEach((partition, index) => {
    if (matches(partition)) found.push(index);
  });
  const value = (index) => {
    const partition = partitions[index];
    if (key === "end") return endOf(partition);
    return key === "status" ? STATUSES.indexOf(statusOf(partition)) : partition[key];
  };
  const compare = (a, b) => {
    const [x, y] = [value(a), value(b)];
    // What is not known is last, whichever way the rest is sorted.
    if (x === null || y === null || x === undefined || y === undefined) {
      return (x ?? null) === (y ?? null) ? a - b : (x ?? null) === null ? 1 : -1;
    }
    let order = 0;
    if (key === "partition") order = compareIds(x, y);
    else if (key === "owner") order = compareNames(x, y);
    else order = x - y;
    return (down ? -order : order) || a - b;
  };
  return key === "partition" && !down ? found : found.sort(compare);
}
