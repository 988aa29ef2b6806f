// What an operator can ask for: the words of the dialogue, and the request. Pure.

import { count, plural, visible } from "./format.js";
import { isThere, totals } from "./model.js";

/** What can be done to a worker. `offered` is by what is known of it. */
export const WORKER_ACTIONS = {
  drain: {
    verb: "Drain",
    offered: (worker) => isThere(worker) && worker.drained !== true,
    request: ({ worker }) => ({ kind: "drain", worker }),
    effects: ({ worker, model }) => [
      `${loadOf(model, worker)} to ${others(model, worker)}, ` +
        "each by a handoff: no message is lost or handled twice.",
      "It stays in the group and gets nothing, until you undrain it or it restarts.",
    ],
  },
  undrain: {
    verb: "Undrain",
    offered: (worker) => isThere(worker) && worker.drained !== false,
    request: ({ worker }) => ({ kind: "undrain", worker }),
    effects: () => ["It gets its share again: partitions move to it, each by a handoff."],
  },
  evict: {
    verb: "Evict",
    grave: true,
    offered: (worker) => isThere(worker),
    fields: ["stay_away"],
    request: ({ worker, model }, { stay_away }) => ({
      kind: "evict",
      worker,
      incarnation: model.workers.get(worker)?.incarnation ?? 0,
      ...(stay_away ? { stay_away: true } : {}),
    }),
    effects: ({ worker, model }) => [
      `Its session ends now, whatever its handlers are doing. ` +
        `${loadOf(model, worker)} to ${others(model, worker)}.`,
      "As after a crash: what it did since its last checkpoints is handled again.",
      "This is for a worker that hangs. Drain is the gentle way.",
    ],
  },
};

/** What can be done to a partition. */
export const PARTITION_ACTIONS = {
  move: {
    verb: "Move",
    offered: () => true,
    fields: ["to"],
    request: ({ partition }, { to }) => ({ kind: "move", partition, worker: to }),
    effects: () => [
      "It goes there by a handoff: no message is lost or handled twice.",
      "It stays there as long as that worker lives. Unpin lets the strategy decide again.",
    ],
  },
  pin: {
    verb: "Pin",
    offered: () => true,
    fields: ["to"],
    request: ({ partition }, { to }) => ({ kind: "pin", partition, worker: to }),
    effects: () => [
      "It goes there by a handoff, and whenever that worker is there, also after a restart.",
      "While the worker is away, another one serves it.",
    ],
  },
  unpin: {
    verb: "Unpin",
    offered: (partition) => partition.pinned_to !== null,
    request: ({ partition }) => ({ kind: "unpin", partition }),
    effects: () => ["The strategy decides again where it is served. It may move."],
  },
  pause: {
    verb: "Pause",
    offered: (partition) => !partition.paused,
    request: ({ partition }) => ({ kind: "pause", partition }),
    effects: ({ partition, model }) => {
      const owner = model.partition(partition)?.owner ?? null;
      const lets =
        owner === null ? "" : `${visible(owner)} finishes the message it is at and lets go. `;
      return [
        `${lets}Nobody handles it until you resume it.`,
        "Its lag grows; its checkpoint stays.",
      ];
    },
  },
  resume: {
    verb: "Resume",
    offered: (partition) => partition.paused,
    request: ({ partition }) => ({ kind: "resume", partition }),
    effects: ({ partition, model }) => {
      const next = model.partition(partition)?.next_offset ?? null;
      const from = next === null ? "where it starts" : `offset ${count(next)}`;
      return [`A worker takes it and goes on at ${from}.`];
    },
  },
};

/** What can be done to the whole group. */
export const GROUP_ACTIONS = {
  rebalance: {
    verb: "Rebalance",
    request: () => ({ kind: "rebalance" }),
    effects: () => [
      "The leader plans anew now, whatever threshold and cooldown say.",
      "Partitions that the plan places elsewhere move, each by a handoff.",
    ],
  },
};

function loadOf(model, worker) {
  const load = totals(model).byOwner.get(worker)?.partitions ?? 0;
  return load === 1 ? "Its partition goes" : `Its ${plural(load, "partition")} go`;
}

function others(model, worker) {
  const there = [...model.workers.values()];
  const rest = there.filter((other) => other.worker !== worker && isThere(other)).length;
  if (rest === 0) return "nobody: there is no other worker";
  return rest === 1 ? "the other worker" : `the other ${count(rest)} workers`;
}

/** The longest reason that is taken, in bytes. */
const LONGEST_REASON = 500;

/** What is wrong with a reason; empty if nothing is. */
export function reasonProblem(text) {
  const { length } = new TextEncoder().encode(text.trim());
  if (length === 0) return "Give a reason.";
  return length > LONGEST_REASON ? `${count(length - LONGEST_REASON)} bytes too long.` : "";
}

/** Where a checkpoint can be set to: what was typed becomes what is sent. Throws in words. */
export function resetTarget({ to, offset, time }) {
  switch (to) {
    case "earliest":
    case "latest":
      return to;
    case "offset": {
      if (!/^\d{1,16}$/.test(offset.trim())) throw new Error("Give the offset as a whole number.");
      return { offset: Number(offset) };
    }
    case "time": {
      const at = new Date(time).getTime();
      if (Number.isNaN(at)) throw new Error("Give the time as date and time of day.");
      return { time_ms: at };
    }
    default:
      throw new Error("Choose where to.");
  }
}

/** What a dry run told, in a line. */
export function resetSummary(changes) {
  const lower = changes.filter(({ from, to }) => offsetOf(to) < offsetOf(from)).length;
  const higher = changes.filter(({ from, to }) => offsetOf(to) > offsetOf(from)).length;
  const same = changes.length - lower - higher;
  const parts = [];
  if (lower > 0) parts.push(`${plural(lower, "partition")} back: messages are handled again`);
  if (higher > 0) parts.push(`${plural(higher, "partition")} forward: messages are skipped`);
  if (same > 0) parts.push(`${plural(same, "partition")} unchanged`);
  return parts.join("; ") || "nothing to change";
}

/** Whether a reset would change anything, by its dry run. One that nobody ever took is written. */
export function changesSomething(changes) {
  const place = (at) => (at === null || at === undefined ? null : offsetOf(at));
  return changes.some(({ from, to }) => place(from) !== place(to));
}

/** The offset of a place; a place may be a number, or name its next offset. */
export function offsetOf(place) {
  if (place === null || place === undefined) return 0;
  return typeof place === "object" ? (place.next_offset ?? 0) : place;
}

/** `7=5, 9=2` as `{ "7": 5, "9": 2 }`. Throws in words. */
export function parseWeights(text) {
  const weights = {};
  for (const entry of text.split(/[,\n]/).map((part) => part.trim())) {
    if (entry === "") continue;
    const [, id, weight] = /^(.+)=\s*(\d{1,9})$/s.exec(entry) ?? [];
    if (!id || Number(weight) < 1) {
      throw new Error(`“${visible(entry)}”: give weights as PARTITION=WEIGHT, such as 7=5.`);
    }
    weights[id.trim()] = Number(weight);
  }
  return weights;
}
