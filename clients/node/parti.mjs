// A consumer of Parti groups, with nothing but what Node (18 or newer) has itself.
//
//   import { consume } from "./parti.mjs";
//   await consume({ url: "http://127.0.0.1:7070", group: "billing", topic: "orders" },
//     async (message) => bill(message.payload));
//
// The handler is called for one message at a time of each partition, in order; partitions go on
// side by side. What it returns from is done, and is committed in batches. When a partition is to
// move, the message under way is finished and committed first. Several instances of the service are
// one url with commas: when one is gone, in trouble or cut off from its store, the session goes on
// at the next, after what is handled. When the session is gone, it registers again, and nothing old
// is committed. While the service has trouble (5xx), it is tried again later, and told to `onEvent`
// as "trouble", with what was being done and why it failed. An operator who evicts it for good ends
// it with an error, and so does what nobody mends while it waits: no such group, another topic than
// the group's, a url that is none. On the signal, what is under way is finished and committed, and
// everything is given to others.
//
// A heartbeat goes out three times in a TTL. Answers are the lease, and say how long it lasts:
// without it, nothing is handled. A handler that keeps the thread for itself keeps heartbeats from
// going out, too: after a TTL others get what it has.

/** The service did not do it. */
export class PartiError extends Error {
  constructor(status, said) {
    // A gateway's page says only its status.
    const word = (name, other) => (typeof said?.[name] === "string" ? said[name] : other);
    const message = word("message", `the service answered ${status}`);
    const remedy = word("remedy", "");
    super(remedy ? `${message}; ${remedy}` : message);
    Object.assign(this, { status, code: word("code", "unknown"), remedy });
  }
}

const kinds = {
  text: (one) => typeof one === "string",
  number: Number.isSafeInteger,
  list: Array.isArray,
};

/** What was told, if it has these fields, each of its kind: anything else is somebody else's answer,
 * and a failure like others. */
function fits(told, fields) {
  for (const [name, kind] of Object.entries(fields)) {
    if (kinds[kind](told?.[name])) continue;
    const is = String(JSON.stringify(told?.[name])).slice(0, 100);
    throw new Error(`no answer of the service: ${name} is ${is}`);
  }
  return told;
}

/** What has to be in an event. */
const grant = { partition: "text", epoch: "number" };
const known = {
  session: { held: "list" },
  assigned: { ...grant, next_offset: "number" },
  revoke: grant,
  lost: grant,
  end: { why: "text" },
};

/** A signal for what may take so long, and ends with another signal, too; and how to put it off. */
function within(ms, signal) {
  const limit = new AbortController();
  const stop = () => limit.abort();
  let timer = setTimeout(stop, ms);
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop);
  return {
    signal: limit.signal,
    stop,
    again() {
      clearTimeout(timer);
      timer = setTimeout(stop, ms);
    },
    end() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    },
  };
}

async function request(url, method, token, body, signal, ms = 60_000) {
  const limit = within(ms, signal);
  try {
    return await answered(url, method, token, body, limit.signal);
  } catch (error) {
    if (!limit.signal.aborted || signal?.aborted) throw error;
    throw new Error(`no answer within ${Math.round(ms)} ms`);
  } finally {
    limit.end();
  }
}

async function answered(url, method, token, body, signal) {
  const headers = {};
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const text = body && JSON.stringify(body);
  const response = await fetch(url, { method, headers, body: text, signal });
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new PartiError(response.status, answer?.error);
  if (answer === null) throw new Error(`the service answered ${response.status}, and no JSON`);
  return answer;
}

/** The events of a stream, as [name, data]. */
async function* events(response, heard) {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of response.body) {
    heard();
    text += decoder.decode(chunk, { stream: true });
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const field = (name) => lines.find((line) => line.startsWith(name))?.slice(name.length);
      const event = field("event: ");
      if (!Object.hasOwn(known, event ?? "")) continue;
      const data = fits(JSON.parse(field("data: ")), known[event]);
      data.held?.forEach((one) => fits(one, grant));
      yield [event, data];
    }
  }
}

function isUrl(text) {
  try {
    return ["http:", "https:"].includes(new URL(text).protocol);
  } catch {
    return false;
  }
}

/** The instances of a service, and which of them is asked. */
class Service {
  constructor(url) {
    this.urls = url.split(",").map((one) => one.trim().replace(/\/+$/, ""));
    for (const one of this.urls) {
      if (isUrl(one)) continue;
      throw new TypeError(`url: "${one}" is no URL of a service; give one as http://127.0.0.1:7070`);
    }
    this.at = 0;
  }

  get url() {
    return this.urls[this.at];
  }

  /** This one is of no use: the next is asked from now on. */
  moveOn(url) {
    if (this.url === url) this.at = (this.at + 1) % this.urls.length;
  }

  /** Whether the same may do later, or elsewhere: another instance may go by its name. */
  passes(error) {
    if (!(error instanceof PartiError)) return true;
    if (error.status === 421) return error.code === "not_here" || this.urls.length > 1;
    return [408, 410, 429].includes(error.status) || error.status >= 500;
  }

  /** Whether what is answered so is answered so again. */
  isFinal(error) {
    return !this.passes(error) && [400, 401, 403, 404, 409, 421].includes(error.status);
  }
}

const pause = (ms) => new Promise((resume) => setTimeout(resume, ms));

/** One partition that is held: fetched, handled and committed on its own. */
class Partition {
  constructor(session, { partition, epoch, next_offset }, left) {
    Object.assign(this, { session, partition, epoch, next: next_offset });
    Object.assign(this, { done: null, committed: null, refused: null });
    this.over = new AbortController();
    this.ended = this.run(left);
  }

  /** Goes on after what is handled, if nobody else had it meanwhile: epochs count owners. */
  async follow(left) {
    await left.ended;
    const alone = [0, 1].includes(this.epoch - left.epoch);
    if (alone && left.done !== null && left.done >= this.next) {
      Object.assign(this, { done: left.done, next: left.done + 1 });
    }
  }

  async run(left) {
    // What is under way may take long: others do not wait for it.
    if (left) await this.follow(left);
    const { options } = this.session;
    const path = `/v1/topics/${encodeURIComponent(options.topic)}/partitions/` +
      `${encodeURIComponent(this.partition)}/messages`;
    while (!this.over.signal.aborted) {
      let doing = "fetch";
      // Only at an instance that has the session: what another one has need not be the group's.
      const { stream } = this.session;
      if (!stream) {
        await pause(50);
        continue;
      }
      try {
        const asked = `${this.session.service.url}${path}?from=${this.next}&limit=100` +
          `&wait_ms=5000&group=${encodeURIComponent(options.group)}`;
        const found = await request(asked, "GET", options.token, undefined, this.over.signal);
        fits(found, { messages: "list", next: "number" });
        for (const one of found.messages) fits(one, { offset: "number", headers: "list" });
        if (stream !== this.session.stream) continue;
        doing = "handle";
        for (const message of found.messages) {
          await this.session.mayHandle(this.over.signal);
          if (this.over.signal.aborted) return;
          await this.session.handler({ ...message, partition: this.partition, epoch: this.epoch });
          this.done = message.offset;
        }
        this.next = found.next;
      } catch (error) {
        if (!this.over.signal.aborted) {
          this.session.fails(doing, error, { partition: this.partition });
          // Elsewhere it may do: the stream tells where that is.
          const told = doing === "fetch" && stream === this.session.stream;
          if (told && this.session.service.isFinal(error)) return this.session.failWith(error);
          // The same message again: what failed is not done.
          if (this.done !== null) this.next = this.done + 1;
          await pause(500);
        }
      }
    }
  }

  /** Handles no more; resolves once nothing is under way. */
  async stop() {
    this.over.abort();
    await this.ended;
  }
}

class Session {
  constructor(options, service, handler) {
    this.options = options;
    this.service = service;
    this.handler = handler;
    this.tell = options.onEvent ?? (() => {});
    this.held = new Map();
    this.left = new Map();
    this.epochs = new Map(); // the highest of each partition
    this.leaseUntil = 0;
    this.nextBeat = 0;
    this.stream = null; // the one that is open: its instance has this session
    this.failed = null; // what nothing but a person can mend
  }

  /** Nothing but a person can mend it: that ends it. */
  failWith(error) {
    this.failed ??= error;
    this.stopListening?.();
  }

  /** What is committed would count for messages that nobody here has seen. */
  checkTopic({ topic = this.options.topic }) {
    const { group, topic: mine } = this.options;
    if (topic === mine) return;
    throw this.failed = new PartiError(409, {
      code: "conflict",
      message: `topic: the group "${group}" is about "${topic}", not about "${mine}"`,
      remedy: `give "${topic}", or another group`,
    });
  }

  async call(method, what, body) {
    // An instance that does not answer may be frozen: the session goes on elsewhere meanwhile.
    const ms = Math.max(this.ttl / 2, 1000);
    const url = this.service.url + this.path + what;
    return await request(url, method, this.token, body, undefined, ms);
  }

  /** Tells what went wrong. */
  fails(doing, error, where = {}) {
    this.tell("trouble", { doing, ...where, why: String(error) });
  }

  /** Waits while others may have what is held: the stream will tell. Only the answer to a heartbeat
   * shows that it is ours, for as long as it says, from when it was sent: what the stream says may
   * have waited here for long. */
  async mayHandle(signal) {
    const lapsed = () => performance.now() >= this.leaseUntil;
    while (lapsed() && !signal.aborted) await pause(Math.min(this.ttl / 12, 100));
  }

  /** Says that this process is there; again soon if nobody heard it. */
  async beat() {
    const began = performance.now();
    if (this.beating || began < this.nextBeat) return;
    this.beating = true;
    try {
      const heard = fits(await this.call("POST", "/heartbeat"), { lease_ms: "number" });
      this.leaseUntil = began + heard.lease_ms;
      this.nextBeat = began + this.ttl / 3;
    } catch (error) {
      // The stream tells what became of the session.
      if (!this.over) this.fails("heartbeat", error);
    }
    this.beating = false;
  }

  async run(signal) {
    const { group, topic, token, name = "node", metadata = {} } = this.options;
    const { url } = this.service;
    const sessions = `/v1/groups/${encodeURIComponent(group)}/sessions`;
    const about = { consumer: name, metadata, liveness: "heartbeat", topic };
    const fields = { session: "text", token: "text", worker: "text", ttl_ms: "number" };
    const opening = request(url + sessions, "POST", token, about);
    const opened = await opening.then((told) => fits(told, fields)).catch((error) => {
      if (this.service.passes(error)) this.service.moveOn(url);
      throw error;
    });
    this.path = `${sessions}/${encodeURIComponent(opened.session)}`;
    this.token = opened.token;
    this.ttl = opened.ttl_ms;
    this.checkTopic(opened);
    this.tell("registered", { worker: opened.worker });
    const committing = setInterval(() => this.commitInTurn(), 300);
    const beating = setInterval(() => this.beat(), this.ttl / 12);
    this.beat();
    try {
      await this.listen(signal);
    } finally {
      // Who leaves still has what its handlers are at: until that is committed it stays alive, or
      // others would begin the same. A session that has ended needs nothing any more.
      const leaves = signal?.aborted || this.failed;
      this.over = !leaves;
      if (this.over) [committing, beating].forEach(clearInterval);
      try {
        await Promise.all([...this.held.values()].map((one) => one.stop()));
        this.over = true;
        clearInterval(committing);
        if (leaves) await this.leave();
      } finally {
        clearInterval(committing);
        clearInterval(beating);
      }
    }
  }

  /** What is not committed others handle again: so what may do later is tried again for a while. If
   * it does not do, the session falls silent, and is over after its TTL. */
  async leave() {
    const until = performance.now() + 2000;
    await this.insist("commit", () => this.commit(), until);
    await this.insist("leave", () => this.call("DELETE", ""), until);
  }

  async insist(doing, work, until) {
    for (let wait = 100; ; wait *= 2) {
      const { url } = this.service;
      try {
        return await work();
      } catch (error) {
        if (doing === "leave" && error.status === 410) return; // there is nothing to leave any more
        this.fails(doing, error);
        if (error.status === 410 || !this.service.passes(error)) return;
        if (performance.now() + wait >= until) return;
        if (error.status === 421) this.service.moveOn(url); // the session may be there
      }
      await pause(wait);
    }
  }

  /** Reads the stream, and opens it again while the session lives. */
  async listen(signal) {
    while (!signal?.aborted) {
      if (this.failed) throw this.failed;
      const { url } = this.service;
      // Signs of life come three times in a TTL.
      const limit = within(Math.max(this.ttl * 0.7, 1000), signal);
      this.stopListening = limit.stop;
      try {
        const headers = { authorization: `Bearer ${this.token}` };
        const opening = { headers, signal: limit.signal };
        const response = await fetch(`${url}${this.path}/events`, opening);
        if ([401, 404, 410].includes(response.status)) {
          const answer = await response.json().catch(() => null);
          const { message: why, code } = new PartiError(response.status, answer?.error);
          return this.end({ why, again: code !== "dismissed", code });
        }
        if (!response.ok) {
          const answer = await response.json().catch(() => null);
          throw new PartiError(response.status, answer?.error);
        }
        for await (const [event, data] of events(response, () => limit.again())) {
          // Whatever does not begin so is no stream of the service.
          this.checkEpochs(event, data);
          if (event === "session") this.stream = response;
          if (event === "end") return this.end(data);
          this.take(event, data);
        }
        if (!this.stream) throw new Error("the stream ended before it began");
      } catch (error) {
        if (signal?.aborted) return;
        if (this.failed) throw this.failed;
        if (error.code === "dismissed") throw error;
        this.fails("listen", error);
        if (error.status === 421 && !this.service.passes(error)) throw (this.failed = error);
        // Wherever the stream is, the session is.
        this.service.moveOn(url);
      } finally {
        this.stream = null;
        limit.end();
      }
      await pause(Math.min(this.ttl / 10, 200));
    }
  }

  /** An instance that the session has left, and that has not noticed yet, tells what was ours
   * before: it is not believed. */
  checkEpochs(event, data) {
    const told = { session: data.held, assigned: [data] }[event] ?? [];
    for (const { partition, epoch } of told) {
      const had = this.epochs.get(partition) ?? epoch;
      if (epoch < had) {
        throw new Error(`partition ${partition} is told under epoch ${epoch}, after ${had}: ` +
          "the session went on elsewhere since");
      }
      this.epochs.set(partition, epoch);
    }
  }

  end(data) {
    this.tell("end", data);
    if (data.again !== false) return;
    throw new PartiError(410, { code: "dismissed", message: data.why });
  }

  take(event, data) {
    const mine = this.held.get(data.partition);
    const same = mine?.epoch === data.epoch;
    if (event === "session") {
      this.checkTopic(data);
      const listed = new Set(data.held.map((one) => `${one.partition} ${one.epoch}`));
      for (const one of this.held.values()) {
        if (!listed.has(`${one.partition} ${one.epoch}`)) this.drop(one);
      }
    } else if (event === "assigned" && !same) {
      if (mine) this.drop(mine);
      const left = this.left.get(data.partition);
      this.left.delete(data.partition);
      this.held.set(data.partition, new Partition(this, data, left));
      this.tell(event, data);
    } else if (event === "revoke" && same) {
      this.tell(event, data);
      this.release(mine).catch((error) => {
        if (!this.over) this.fails("release", error, { partition: data.partition });
      });
    } else if (event === "lost" && same) {
      this.drop(mine);
      this.tell(event, data);
    }
  }

  drop(one) {
    if (this.held.get(one.partition) === one) this.held.delete(one.partition);
    this.left.set(one.partition, one);
    one.over.abort();
  }

  /** Lets go of it, and says so until the service has heard it: else others wait until the deadline.
   * That the session is over, goes on elsewhere, or was too late, is what the stream tells. */
  async release(one) {
    if (one.over.signal.aborted) return; // it is told again where the stream is opened again
    await one.stop();
    const { partition, epoch } = one;
    const body = { partition, epoch };
    if (one.done !== null) body.offset = one.done;
    while (!this.over && this.held.get(partition) === one) {
      try {
        const result = fits(await this.call("POST", "/released", body), { result: "text" });
        this.drop(one);
        return this.tell("released", { partition, ...result });
      } catch (error) {
        if (!this.over) this.fails("release", error, { partition });
      }
      await pause(300);
    }
  }

  /** One at a time, so that they do not pile up where nobody answers. */
  async commitInTurn() {
    if (this.committing) return;
    this.committing = true;
    // Again with the next ones: a commit bears repetition.
    await this.commit().catch((error) => this.over || this.fails("commit", error));
    this.committing = false;
  }

  async commit() {
    const dirty = [...this.held.values()].filter(
      ({ done, committed, refused }) => done !== committed && done !== refused,
    );
    if (!dirty.length) return;
    const commits = dirty.map(({ partition, epoch, done }) => ({ partition, epoch, offset: done }));
    const { results } = fits(await this.call("POST", "/commits", { commits }), { results: "list" });
    for (const one of results) fits(one, { result: "text" });
    if (results.length !== commits.length) {
      throw new Error(`${commits.length} commits have ${results.length} results`);
    }
    results.forEach(({ result, why }, at) => {
      const { offset, partition } = commits[at];
      if (result === "ok") dirty[at].committed = offset;
      if (result === "refused") {
        // Not asked again until more is done: the answer would be the same.
        dirty[at].refused = offset;
        this.tell("trouble", { doing: "commit", partition, why });
      }
      // What was let go of meanwhile is no loss: the commit came after the release.
      if (result === "fenced" && !dirty[at].over.signal.aborted) {
        this.drop(dirty[at]);
        this.tell("lost", { partition: dirty[at].partition, why });
      }
    });
  }
}

/** Consumes until the signal says stop. Options: url, group, topic, name, token, onEvent. */
export async function consume(options, handler, signal) {
  const service = new Service(options.url);
  let wait = 100;
  while (!signal?.aborted) {
    const began = Date.now();
    try {
      await new Session(options, service, handler).run(signal);
    } catch (error) {
      if (service.isFinal(error) || error.code === "dismissed") throw error;
      if (!signal?.aborted) {
        options.onEvent?.("trouble", { doing: "register", why: String(error) });
      }
    }
    wait = Date.now() - began > 10_000 ? 100 : Math.min(wait * 2, 5000);
    if (!signal?.aborted) await pause(wait);
  }
}
