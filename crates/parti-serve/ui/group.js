// The page of one group: a model that the stream keeps up to date, and parts that show it.
//
//   stream ─▶ model ─▶ at most one painting per frame ─▶ the parts that are due
//
// Each part has its pace, and a frame shows no more than fits into a few milliseconds: what waited
// longest comes first, and the rest in the next frame. A part that is shown for the first time
// costs the browser more than its script, so a frame has one of them. So no task is ever long.

import { GROUP_ACTIONS } from "./actions.js";
import { groupPath } from "./api.js";
import { Beats } from "./beats.js";
import { Consumers } from "./consumers.js";
import { confirmAction, resetCheckpoints } from "./dialogs.js";
import { button, h, name, setAttr, setText } from "./dom.js";
import { EventLog } from "./events.js";
import { age, clock, compact, count, duration, visible, words } from "./format.js";
import { HandoffTimes, HandoffWatch, Meter, Rebalances, Series } from "./history.js";
import { Inspector } from "./inspector.js";
import { Live } from "./live.js";
import { PartitionMap } from "./map.js";
import { GroupModel, stateOf, totals } from "./model.js";
import { Handoffs, RebalanceList } from "./moves.js";
import { Palette } from "./palette.js";
import { PartitionTable } from "./partitions.js";
import { Plot } from "./plots.js";
import { RequestList } from "./requests.js";
import { WhatIf } from "./whatif.js";
import { WorkerTable } from "./workers.js";

const SECOND = 1000;
/** So much of a frame is for scripts. */
const BUDGET_MS = 5;
const PARTS = [
  "workers",
  "map",
  "partitions",
  "requests",
  "handoffs",
  "rebalances",
  "events",
  "whatif",
];

export class GroupPage {
  #api;
  #group;
  #frame = 0;
  #timer;
  #live;
  #handoffsChanged = true;
  #rates = new Map();
  #meters = { done: new Meter(), come: new Meter(), by: new Map() };
  #series = { done: new Series(), come: new Series(), lag: new Series() };
  #sums = null;
  #shows = [];
  #isLive = false;
  #blind = null; // why the server does not hear its store

  constructor(api, group, { onState, onTitle }) {
    this.#api = api;
    this.#group = group;
    this.onTitle = onTitle;
    this.model = new GroupModel();
    this.palette = new Palette();
    this.watch = new HandoffWatch();
    this.times = new HandoffTimes();
    this.rebalances = new Rebalances();
    this.beats = new Beats();
    this.consumers = new Consumers(
      () => api.get(groupPath(group, "/sessions"), SECOND * 10),
      () => {
        if (this.element.isConnected) for (const part of ["workers", "inspector"]) this.#wake(part);
      },
    );
    this.#build();
    this.#live = new Live((signal) => api.stream(groupPath(group, "/live"), signal), {
      event: (event, data) => this.#take(event, data),
      state: (state) => {
        this.#follow(state);
        onState(state);
      },
      heard: () => {
        // Signs of life of the server say nothing of its store.
        if (this.#blind === null) this.beats.heard(performance.now());
      },
    });
    this.#timer = setInterval(() => this.#second(), SECOND);
  }

  close() {
    this.#live.close();
    clearInterval(this.#timer);
    this.inspector.close();
    cancelAnimationFrame(this.#frame);
    for (const part of [this.map, this.partitions, this.workers, ...this.plots]) part.close();
  }

  retry() {
    this.#live.retry();
  }

  rest() {
    this.#live.rest();
  }

  wake() {
    this.#live.wake();
  }

  #build() {
    const { model, palette, beats, consumers } = this;
    const wakes = (part) => () => this.#wake(part);
    const show = (kind) => (id) => this.inspector.show(kind, id, this.#api.now());
    const showPartition = show("partition");
    const showWorker = (id) => {
      const worker = model.workers.get(id);
      if (worker) consumers.want(worker);
      show("worker")(id);
    };
    const reset = (ids) => resetCheckpoints(ids, { model }, (path, body) => this.#post(path, body));
    const act = (action, subject, context) =>
      confirmAction(action, subject, context, (path, body) => this.#post(path, body));
    this.map = new PartitionMap(model, palette, { select: showPartition, wake: wakes("map") });
    this.partitions = new PartitionTable(model, palette, {
      select: showPartition,
      reset,
      wake: wakes("partitions"),
    });
    this.workers = new WorkerTable(model, palette, beats, consumers, {
      select: showWorker,
      wake: wakes("workers"),
    });
    this.requests = new RequestList(model);
    this.handoffs = new Handoffs(this.watch, palette);
    this.rebalanceList = new RebalanceList(this.rebalances);
    this.events = new EventLog(model, {
      older: (before) => this.#older(before),
      wake: wakes("events"),
    });
    this.whatIf = new WhatIf(model, (body) => this.#post("/plan", body));
    this.inspector = new Inspector(model, palette, beats, consumers, {
      act,
      reset,
      chosen: (kind, id) => this.#chosen(kind, id),
    });
    const rebalance = () => act(GROUP_ACTIONS.rebalance, null, { model });
    this.head = h("div", { class: "group-head" });
    this.title = h("h1", {}, name(this.#group));
    this.state = h("span", { class: "state" });
    this.facts = h("span", { class: "facts muted" });
    this.trouble = h("p", { class: "banner", role: "status", hidden: true });
    this.head.append(
      h("div", { class: "title-line" }, this.title, this.state, this.facts),
      button("Rebalance…", rebalance, { class: "small operate" }),
    );
    this.tiles = new Map(
      [
        ["workers", "Workers"],
        ["partitions", "Partitions"],
        ["owned", "Owned"],
        ["moving", "Moving"],
        ["paused", "Paused"],
        ["unserved", "Unserved"],
      ].map(([key, label]) => [key, new Tile(label)]),
    );
    this.plots = this.#buildPlots(wakes);
    this.element = h(
      "div",
      { class: "group", hidden: true },
      this.head,
      this.trouble,
      h("div", { class: "summary" }, this.#tileBox(), ...this.plots.map(({ element }) => element)),
      this.#partsNav(),
      h(
        "div",
        { class: "columns" },
        h("div", { class: "column" }, this.map.element, this.partitions.element),
        h(
          "div",
          { class: "column" },
          this.workers.element,
          this.requests.element,
          this.handoffs.element,
          this.rebalanceList.element,
          this.events.element,
        ),
      ),
      this.whatIf.element,
      this.inspector.element,
    );
    this.#shows = this.#paces();
  }

  /** What is shown at most how often (milliseconds), by whom. */
  #paces() {
    const show = (name, every, render) => ({ name, every, render, next: 0, isNew: true });
    return [
      show("head", 200, (now) => this.#paintHead(now)),
      show("map", 0, () => this.map.render(this.#sums.maxLag)),
      show("handoffs", 100, () => {
        this.handoffs.render(performance.now(), this.#handoffsChanged);
        this.#handoffsChanged = false;
      }),
      show("requests", 200, (now) => this.requests.render(now)),
      show("inspector", 200, (now) => this.inspector.render(now)),
      show("partitions", 300, (now) => this.partitions.render(now)),
      show("workers", 500, (now) => {
        this.workers.render(this.#sums.byOwner, this.#rates, now);
      }),
      show("rebalances", 400, (now) => this.rebalanceList.render(now)),
      show("events", 400, (now) => this.events.render(now)),
      show("progress", 500, (now) => this.#paintProgress(now)),
      show("lag", 500, (now) => this.#paintLag(now)),
      show("durations", 500, (now) => this.#paintDurations(now)),
      show("whatif", 1000, () => this.whatIf.render()),
    ];
  }

  #tileBox() {
    return h("div", { class: "tiles" }, ...[...this.tiles.values()].map(({ element }) => element));
  }

  #buildPlots(wakes) {
    const { done, come, lag } = this.#series;
    const rate = (value) => `${compact(value)}/s`;
    const dots = [
      { points: () => this.times.list.map(({ at, took }) => [at, took]), ink: "accent" },
      {
        points: () => this.times.list.map(({ at, pause }) => [at, pause]),
        ink: "warn",
        hollow: true,
      },
    ];
    const lines = [
      { series: come, ink: "second", dashed: true },
      { series: done, ink: "accent", filled: true },
    ];
    return [
      new Plot("Progress", { lines, format: rate, wake: wakes("progress") }),
      new Plot("Lag", {
        lines: [{ series: lag, ink: "warn", filled: true }],
        format: compact,
        wake: wakes("lag"),
      }),
      new Plot("Handoffs", { dots, format: duration, wake: wakes("durations") }),
    ];
  }

  #partsNav() {
    const go = (id) => {
      const part = document.getElementById(id);
      part.scrollIntoView({ block: "start" });
      part.focus({ preventScroll: true });
    };
    const links = PARTS.map((id) =>
      button(id === "whatif" ? "What if" : capital(id), () => go(id)),
    );
    return h("nav", { class: "parts", "aria-label": "Parts of this page" }, ...links);
  }

  async #post(path, body) {
    return this.#api.post(groupPath(this.#group, path), body);
  }

  async #older(before) {
    const from = before === null ? "" : `before=${before}&`;
    const { events } = await this.#api.get(groupPath(this.#group, `/events?${from}limit=200`));
    this.model.older(events);
    return events.length > 0;
  }

  #chosen(kind, id) {
    const [worker, partition] = [kind === "worker" ? id : null, kind === "partition" ? id : null];
    this.workers.choose(worker);
    this.partitions.choose(partition);
    this.map.choose(partition);
    for (const part of ["workers", "partitions"]) this.#wake(part);
  }

  #take(event, data) {
    if (event !== "group" && event !== "change") return;
    const { model } = this;
    const now = this.#api.now();
    const moves = event === "group" ? model.replace(data) : model.change(data);
    this.palette.meet(model.workers.keys());
    this.beats.look(data.workers ?? [], now);
    this.beats.keep((id) => model.workers.has(id));
    this.consumers.look(model.workers.values(), performance.now());
    if (event === "group" || data.handoffs || moves.length > 0) {
      const ownerOf = (id) => model.partition(id)?.owner ?? null;
      this.watch.look(model.handoffs, moves, ownerOf, performance.now());
      this.#handoffsChanged = true;
    }
    if (data.events) {
      this.rebalances.events(data.events);
      this.times.events(data.events);
    }
    this.rebalances.plan(model.head.plan);
    this.#wake();
  }

  /** Whether what is shown is how it is: that nothing is heard of a server, or by it of its store,
   * is no fault of the workers. */
  #follow({ name, why }) {
    this.#isLive = name === "live";
    this.#blind = name === "blind" ? why : null;
    if (name !== "live") {
      this.beats.lost();
      this.watch.lost();
    }
    this.#wake("head");
  }

  /** Once a second: the plots get a point, and ages grow. */
  #second() {
    if (this.model.head === null) return;
    const now = this.#api.now();
    if (!this.#isLive) {
      // Nothing is known of this second: that is another thing than no progress.
      for (const series of Object.values(this.#series)) series.push(now, null);
      this.#wake();
      return;
    }
    const { done, come, doneBy } = this.model.progress;
    this.#series.done.push(now, this.#meters.done.look(now, done));
    this.#series.come.push(now, this.#meters.come.look(now, come));
    this.#series.lag.push(now, this.#sums?.lag ?? null);
    for (const id of this.model.workers.keys()) {
      let meter = this.#meters.by.get(id);
      if (!meter) this.#meters.by.set(id, (meter = new Meter()));
      this.#rates.set(id, meter.look(now, doneBy.get(id) ?? 0));
    }
    this.#wake();
  }

  /** Paints in the next frame; one part even if it was shown just now. */
  #wake(part) {
    const show = part && this.#shows.find(({ name }) => name === part);
    if (show) show.next = 0;
    if (this.#frame === 0) this.#frame = requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    this.#frame = 0;
    if (this.model.head === null) return;
    this.element.hidden = false;
    const started = performance.now();
    const due = this.#shows.filter(({ next }) => next <= started);
    due.sort((a, b) => a.next - b.next);
    this.#sums ??= totals(this.model);
    const now = this.#api.now();
    let began = false;
    for (const show of due) {
      if (performance.now() - started > BUDGET_MS || (began && show.isNew)) {
        this.#wake();
        return;
      }
      began ||= show.isNew;
      show.isNew = false;
      show.next = started + show.every;
      show.render(now);
    }
  }

  #paintHead(now) {
    const sums = totals(this.model);
    this.#sums = sums;
    const { head, partitions, workers, unreadable } = this.model;
    const { plan } = head;
    const state = stateOf(this.model, sums, this.beats);
    setAttr(this.state, "class", `state ${state.replace(" ", "-")}`);
    setText(this.state, words(state));
    const facts = [words(head.coordination)];
    if (head.leader) facts.push(`led by ${visible(head.leader)}, term ${head.term}`);
    if (plan) {
      facts.push(visible(plan.fingerprint?.strategy ?? ""));
      facts.push(`${visible(plan.reason)} (${age(plan.started_ms, now)} ago)`);
    }
    setText(this.facts, facts.filter((fact) => fact !== "").join(" · "));
    const live = [...workers.values()].filter(({ status }) => status === "live").length;
    this.tiles.get("workers").show(live, live < workers.size ? `of ${count(workers.size)}` : "");
    this.tiles.get("partitions").show(partitions.length);
    this.tiles.get("owned").show(sums.owned);
    this.tiles.get("moving").show(sums.moving, "", sums.moving > 0 ? "warn" : "");
    this.tiles.get("paused").show(sums.paused, "", sums.paused > 0 ? "warn" : "");
    this.tiles.get("unserved").show(sums.unserved, "", sums.unserved > 0 ? "bad" : "");
    const troubles = unreadable.map(
      ({ key, why }) => `${visible(key)} cannot be read: ${visible(why)}`,
    );
    if (head.closed) troubles.unshift("This group is being deleted.");
    if (this.#blind !== null) {
      troubles.unshift(
        `The service does not hear its store: ${visible(this.#blind)}. What is shown is from before.`,
      );
    }
    this.trouble.hidden = troubles.length === 0;
    setText(this.trouble, troubles.slice(0, 5).join(" · "));
    this.onTitle(
      state === "stable" ? visible(this.#group) : `${visible(this.#group)}: ${words(state)}`,
    );
  }

  #paintProgress(now) {
    const { done, come } = this.#series;
    const arrived = come.last();
    const incoming = arrived === null ? "" : `${compact(arrived)}/s came in (dashed)`;
    const rate = done.last();
    this.plots[0].render(now, rate === null ? "–" : `${compact(rate)}/s`, incoming);
  }

  #paintLag(now) {
    const unknown = this.#sums.lag === null ? "the log was not asked" : "";
    this.plots[1].render(now, compact(this.#sums.lag), unknown);
  }

  #paintDurations(now) {
    const told = this.times.summary();
    if (told === null) {
      const nobody = this.model.head.coordination === "leaderless";
      this.plots[2].render(now, "–", nobody ? "no leader measures them" : "none yet");
      return;
    }
    const { moved, since, took, pause } = told;
    const half = duration(took.half);
    const note = `p50 of ${count(moved)} · pause ${duration(pause.half)} (rings)`;
    const whole =
      `p50 of ${count(moved)} since ${clock(since, now)}, longest ${duration(took.longest)}; ` +
      `nobody served for ${duration(pause.half)} (p50, rings), longest ${duration(pause.longest)}. ` +
      "What ended together counts as its longest.";
    this.plots[2].render(now, half, note, whole);
  }
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

class Tile {
  constructor(label) {
    this.value = h("b", { class: "number" });
    this.note = h("small", { class: "muted" });
    this.element = h("div", { class: "tile" }, h("span", {}, label), this.value, this.note);
  }

  show(value, note = "", mood = "") {
    setText(this.value, count(value));
    setText(this.note, note);
    setAttr(this.element, "class", mood === "" ? "tile" : `tile ${mood}`);
  }
}
