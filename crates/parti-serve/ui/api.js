// Requests to the server that sent this page, and to no other.

const TOKEN = "parti.token";
/** The server ends a request after 60 seconds. Longer ones wait in the browser, or are lost. */
const PATIENCE_MS = 75_000;

/** What the server said when it did not do it. */
export class ApiError extends Error {
  constructor(status, { code = "failed", message, remedy } = {}) {
    super(message ?? `The server answered ${status}.`);
    this.status = status;
    this.code = code;
    this.remedy = remedy ?? null;
  }

  /** Whether a (better) token would help. */
  get wantsToken() {
    return this.status === 401;
  }
}

export class Api {
  #token;
  /** How far the server's clock is ahead of this one, in milliseconds. */
  skew = 0;

  constructor() {
    try {
      this.#token = sessionStorage.getItem(TOKEN);
    } catch {
      this.#token = null; // a browser without storage asks again after a reload
    }
  }

  get hasToken() {
    return Boolean(this.#token);
  }

  /** Takes a token, for as long as this tab is open. */
  set token(token) {
    this.#token = token || null;
    try {
      if (token) sessionStorage.setItem(TOKEN, token);
      else sessionStorage.removeItem(TOKEN);
    } catch {
      // It is known to this page all the same.
    }
  }

  /** The time, by the server's clock as far as it is known. */
  now() {
    return Date.now() + this.skew;
  }

  /** What is there; an answer that does not come within `patience` milliseconds never does. */
  get(path, patience) {
    return this.#json(path, patience ? { signal: AbortSignal.timeout(patience) } : {});
  }

  async post(path, body, patience = PATIENCE_MS) {
    const headers = { "content-type": "application/json", "x-parti-csrf": "1" };
    const signal = AbortSignal.timeout(patience);
    try {
      const options = { method: "POST", headers, body: JSON.stringify(body), signal };
      return await this.#json(path, options);
    } catch (error) {
      if (error.name !== "TimeoutError") throw error;
      throw new Error(
        `No answer within ${Math.round(patience / 1000)} s. Whether it was done is not known: ` +
          "look before you ask again. Many open tabs of this server can be the cause.",
      );
    }
  }

  /** Opens a stream of events. */
  async stream(path, signal) {
    const response = await this.#send(path, { signal, headers: { accept: "text/event-stream" } });
    if (!response.ok) throw await failure(response);
    return response.body;
  }

  async #json(path, options) {
    const response = await this.#send(path, options);
    if (!response.ok) throw await failure(response);
    return response.status === 204 ? null : response.json();
  }

  async #send(path, options) {
    const headers = { accept: "application/json", ...options.headers };
    if (this.#token) headers.authorization = `Bearer ${this.#token}`;
    const response = await fetch(path, {
      cache: "no-store",
      redirect: "error",
      ...options,
      headers,
    });
    this.#learnClock(response.headers.get("date"));
    return response;
  }

  #learnClock(date) {
    const told = date ? Date.parse(date) : NaN;
    if (Number.isNaN(told)) return;
    // The header counts whole seconds: less than two are no difference.
    const skew = told - Date.now();
    this.skew = Math.abs(skew) > 2000 ? skew : 0;
  }
}

async function failure(response) {
  try {
    return new ApiError(response.status, (await response.json()).error);
  } catch {
    return new ApiError(response.status);
  }
}

/** The path of a group, whatever its name is. */
export function groupPath(group, rest = "") {
  return `/v1/groups/${encodeURIComponent(group)}${rest}`;
}
