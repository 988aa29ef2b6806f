// A parser of server-sent events. Pure: text goes in, in pieces of any size, events come out.
//
//   "event: change\nda" ─▶ []      "ta: {…}\n\n" ─▶ [{ event: "change", data: "{…}" }]
//
// A piece is looked at once: a message of megabytes that comes in many pieces stays cheap.

export class SseParser {
  #pieces = [];
  #event = "";
  #data = [];
  #afterReturn = false;
  #started = false;

  /** Takes a piece of text; gives the events that it completes. */
  push(text) {
    const events = [];
    if (!this.#started && text.length > 0) {
      this.#started = true;
      if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    }
    let from = 0;
    if (this.#afterReturn && text.length > 0) {
      if (text[0] === "\n") from = 1;
      this.#afterReturn = false;
    }
    while (from < text.length) {
      const end = lineEnd(text, from);
      if (end < 0) break;
      this.#pieces.push(text.slice(from, end));
      const line = this.#pieces.length === 1 ? this.#pieces[0] : this.#pieces.join("");
      this.#pieces = [];
      this.#line(line, events);
      from = end + 1;
      if (text[end] === "\r") {
        if (from === text.length) this.#afterReturn = true;
        else if (text[from] === "\n") from += 1;
      }
    }
    if (from < text.length) this.#pieces.push(text.slice(from));
    return events;
  }

  #line(line, events) {
    if (line === "") {
      if (this.#data.length > 0) {
        events.push({ event: this.#event || "message", data: this.#data.join("\n") });
      }
      this.#event = "";
      this.#data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment: the server is alive, no more
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "event") this.#event = value;
    else if (field === "data") this.#data.push(value);
  }
}

function lineEnd(text, from) {
  const feed = text.indexOf("\n", from);
  const back = text.indexOf("\r", from);
  if (feed < 0 || back < 0) return Math.max(feed, back);
  return Math.min(feed, back);
}
