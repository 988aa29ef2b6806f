// Groups, workers and partitions as the server tells them.

export function partition(id, owner, more = {}) {
  return {
    partition: id,
    owner,
    incarnation: owner === null ? null : 1,
    owner_session: owner === null ? null : "live",
    assigned: owner,
    prepared_by: null,
    epoch: 1,
    offset: 9,
    next_offset: 10,
    done_above: [],
    begun: null,
    first: 0,
    end: 10,
    lag: 0,
    paused: false,
    pinned_to: null,
    unserved: null,
    claimed_ms: 1,
    updated_ms: 2,
    ...more,
  };
}

export function worker(id, more = {}) {
  return {
    worker: id,
    incarnation: 5,
    status: "live",
    state: 4,
    beat: 1,
    renewed_ms: 1000,
    leader: false,
    partitions: 0,
    serve: 0,
    prepare: 0,
    applied: 1,
    blocked_by: [],
    degraded: null,
    ...more,
  };
}

export function group(more = {}) {
  return {
    group: "g",
    coordination: "leader",
    closed: false,
    leader: "w-1",
    term: 1,
    plan: null,
    workers: [worker("w-10"), worker("w-2")],
    handoffs: [],
    partitions: [partition("10", "w-2"), partition("9", "w-10"), partition("a", null)],
    unreadable: [],
    events: [{ n: 1, at_ms: 1, kind: "join", text: "" }],
    ...more,
  };
}
