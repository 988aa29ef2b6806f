// The start: who we are, which page is asked for, whether it is live.

import { Api } from "./api.js";
import { askToken } from "./dialogs.js";
import { button, byId, clear, h, setAttr, setText } from "./dom.js";
import { visible } from "./format.js";
import { GroupPage } from "./group.js";
import { Overview } from "./overview.js";

const api = new Api();
let page = null;
let asking = false;
let countdown = null;
let hidden = null;
let turn = 0;

/** A tab that is hidden for so long need not be live. */
const HIDDEN_MS = 60_000;

/** The group that the address asks for; `null`: the overview. */
function wantedGroup() {
  const [, encoded] = /^#\/groups\/(.+)$/.exec(location.hash) ?? [];
  if (encoded === undefined) return null;
  try {
    return decodeURIComponent(encoded);
  } catch {
    return encoded;
  }
}

function open() {
  page?.close();
  clear(byId("failure"));
  const group = wantedGroup();
  byId("crumb").hidden = group === null;
  setText(byId("crumb-name"), group === null ? "" : visible(group));
  const hooks = { onState: showState, onTitle: (title) => setTitle(title) };
  page = group === null ? new Overview(api, hooks) : new GroupPage(api, group, hooks);
  clear(byId("view")).append(page.element);
  setTitle(group === null ? "Groups" : visible(group));
}

function setTitle(title) {
  const whole = `${title} – Parti`;
  if (document.title !== whole) document.title = whole;
}

function showState(state) {
  const element = byId("live");
  clearInterval(countdown);
  setAttr(element, "class", `live ${state.name}`);
  // What is shown is from before the connection (or the store) was lost; the role may be another one
  // after it.
  const wasStale = document.body.classList.contains("stale");
  document.body.classList.toggle("stale", state.name !== "live");
  if (wasStale && state.name === "live") learn();
  clear(byId("failure"));
  switch (state.name) {
    case "live":
      setText(element, "Live");
      element.title = "";
      break;
    case "connecting":
      setText(element, state.tries === 0 ? "Connecting" : "Not connected: trying");
      break;
    case "blind":
      setText(element, "Store not heard");
      element.title = visible(state.why);
      break;
    case "resting":
      setText(element, "Resting");
      break;
    case "waiting": {
      element.title = visible(state.why);
      const tick = () => {
        const left = Math.max(0, Math.ceil((state.until - Date.now()) / 1000));
        const again = left > 1 ? `again in ${left} s` : "trying";
        setText(element, `Not connected: ${again}`);
      };
      tick();
      countdown = setInterval(tick, 500);
      break;
    }
    case "refused":
      setText(element, "Not connected");
      refuse(state.error);
      break;
  }
}

/** The server said no: a token may help, or a person. */
function refuse(error) {
  if (error.wantsToken) {
    beNobody();
    enterToken(error.message);
    return;
  }
  const remedy = error.remedy ? ` ${error.remedy}` : "";
  byId("failure").append(
    h("h1", {}, error.status === 404 ? "There is no such group" : "The server refused"),
    h("p", {}, visible(error.message + remedy)),
    button("Try again", () => open(), { class: "primary" }),
    " ",
    h("a", { href: "#/" }, "All groups"),
  );
}

async function enterToken(why) {
  if (asking) return;
  asking = true;
  const token = await askToken(why);
  asking = false;
  if (token === null) {
    clear(byId("failure")).append(
      button("Enter a token", () => enterToken(why), { class: "primary" }),
    );
    return;
  }
  api.token = token;
  start();
}

/** Learns who serves this page, and what we may do. */
async function learn() {
  turn += 1;
  const asked = turn;
  try {
    const about = await api.get("/v1/about");
    if (asked !== turn) return; // by another token meanwhile
    const mayOperate = about.role === "operate";
    document.body.classList.toggle("may-operate", mayOperate);
    setText(byId("about"), `${visible(about.store)} · Parti ${visible(about.version)}`);
    setText(byId("role"), mayOperate ? "operator" : "read only");
    byId("role").title = about.instance ? `instance ${visible(about.instance)}` : "";
  } catch {
    // The page itself says what is wrong with the server, and asks for a token.
  }
}

/** What we may do is not known, until a server says so: what was offered to another token is not. */
function beNobody() {
  turn += 1;
  document.body.classList.remove("may-operate");
  setText(byId("role"), "");
}

/** Nobody looks at what is hidden; it may have been opened so, too. */
function lookAround() {
  clearTimeout(hidden);
  if (document.hidden) hidden = setTimeout(() => page?.rest(), HIDDEN_MS);
  else page?.wake();
}

function start() {
  beNobody();
  byId("forget").hidden = !api.hasToken;
  document.body.classList.add("stale");
  open();
  lookAround();
}

byId("forget").addEventListener("click", () => {
  api.token = null;
  start();
});
byId("live").addEventListener("click", () => page?.retry());
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names a group, not a place on the page
  byId("main").focus();
});
document.addEventListener("visibilitychange", lookAround);
addEventListener("hashchange", open);
addEventListener("online", () => page?.retry());
// In a task of its own: to read all modules was one already.
setTimeout(start);
