// Which workers are silent: by when this page saw their beats change. Pure: the time is an argument.
//
//   signs of life of the server ─▶ a clock that goes only while the store is heard
//   workers, as they change ─────▶ when each beat was another one, by that clock ─▶ silent, or not
//
// Workers say when they renewed their sessions, too, but by clocks of their own, which may be wrong.

/** The server gives a sign of life at least every 3 seconds. Of what is longer nothing is known. */
const LONGEST_MS = 4000;
/** After this long without a beat somebody should look, whatever the group's interval is. */
const SILENT_MS = 10_000;
/** So many of the group's own intervals. */
const MISSED = 3;
/** Before any beat was seen, the interval is not known, and there is but the worker's own clock. */
const UNKNOWN_MS = 60_000;
/** Gaps that are kept of each worker: a session is also renewed sooner, when there is news. */
const GAPS = 8;

export class Beats {
  #clock = 0;
  #since = null;
  #known = new Map();
  #patience = UNKNOWN_MS;

  /** The server gave a sign of life, and hears its store. */
  heard(now) {
    if (this.#since !== null) this.#clock += Math.min(now - this.#since, LONGEST_MS);
    this.#since = now;
  }

  /** Nothing is heard of the store: that is no fault of the workers. */
  lost() {
    this.#since = null;
  }

  /** Takes workers that are new or changed, at `now` by the server's wall clock. */
  look(workers, now) {
    for (const { worker, incarnation, beat, renewed_ms: renewed } of workers) {
      const known = this.#known.get(worker);
      if (known?.incarnation !== incarnation) {
        // Whoever has said nothing for so long need not be waited for.
        const isOld = known === undefined && renewed !== null && now - renewed > UNKNOWN_MS;
        const at = isOld ? -Infinity : this.#clock;
        this.#known.set(worker, { incarnation, beat, at, seen: known !== undefined, gaps: [] });
      } else if (known.beat !== beat) {
        if (known.seen) known.gaps.push((this.#clock - known.at) / Math.max(1, beat - known.beat));
        if (known.gaps.length > GAPS) known.gaps.shift();
        Object.assign(known, { beat, at: this.#clock, seen: true });
      }
    }
  }

  /** Forgets those that are not there any more, and learns how often the others beat. */
  keep(isThere) {
    let longest = null;
    for (const [id, { gaps }] of this.#known) {
      if (!isThere(id)) this.#known.delete(id);
      else if (gaps.length > 0) longest = Math.max(longest, ...gaps);
    }
    this.#patience = longest === null ? UNKNOWN_MS : Math.max(SILENT_MS, MISSED * longest);
  }

  isSilent({ worker }) {
    const known = this.#known.get(worker);
    return known !== undefined && this.#clock - known.at > this.#patience;
  }
}
