// Dialogues: the confirmation of whatever changes something, the reset of checkpoints with its dry
// run, and the question for a token.
//
//   what will happen ─▶ fields, reason ─▶ confirm ─▶ waiting for the effect ─▶ done, or why not

import { changesSomething, offsetOf, reasonProblem, resetSummary, resetTarget } from "./actions.js";
import { button, clear, h, name, notify, setAttr, setText } from "./dom.js";
import { compareNames, count, duration, plural, visible } from "./format.js";
import { isThere } from "./model.js";

const CHANGES_SHOWN = 200;

/** A field with its label. */
function field(label, control, hint) {
  const id = `field-${(field.count = (field.count ?? 0) + 1)}`;
  control.id = id;
  const children = [h("label", { for: id }, label), control];
  if (hint) {
    control.setAttribute("aria-describedby", `${id}-hint`);
    children.push(h("p", { class: "hint", id: `${id}-hint` }, hint));
  }
  return h("div", { class: "field" }, ...children);
}

function reasonField() {
  const control = h("input", {
    required: true,
    autocomplete: "off",
    placeholder: "For the group's history",
  });
  const check = () => control.setCustomValidity(reasonProblem(control.value));
  control.addEventListener("input", check);
  check();
  return { control, element: field("Reason", control) };
}

/** Whether an element is there to take the focus. */
const canTake = (element) =>
  element?.isConnected && !element.disabled && element.getClientRects().length > 0;

/** A modal dialogue that removes itself when it is closed. */
class Modal {
  #opener = null;
  #busy = false;

  constructor(title, { grave = false } = {}) {
    const heading = h("h2", { id: "dialog-title" }, title);
    this.body = h("div", { class: "dialog-body" });
    this.error = h("p", { class: "error", role: "alert", hidden: true });
    this.cancel = button("Cancel", () => this.close(), { class: "secondary" });
    this.confirm = h("button", { type: "submit", class: grave ? "grave" : "primary" });
    const foot = h("footer", {}, this.cancel, this.confirm);
    this.form = h("form", { novalidate: true }, heading, this.body, this.error, foot);
    this.dialog = h("dialog", { "aria-labelledby": "dialog-title" }, this.form);
    this.dialog.addEventListener("close", () => {
      this.dialog.remove();
      this.#goBack();
    });
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
  }

  open() {
    this.#opener = document.activeElement;
    document.body.append(this.dialog);
    this.dialog.showModal();
  }

  /** To where it was opened, or next to that if it is not there any more. */
  #goBack() {
    const opener = this.#opener;
    if (canTake(opener)) {
      opener.focus({ preventScroll: true });
      return;
    }
    const part = opener?.closest("aside, section");
    const near = part?.querySelector("[tabindex='-1']") ?? document.getElementById("main");
    near?.focus({ preventScroll: true });
  }

  close() {
    this.dialog.close();
  }

  get isOpen() {
    return this.dialog.isConnected;
  }

  fail(error) {
    const remedy = error.remedy ? ` ${error.remedy}` : "";
    setText(this.error, visible(error.message) + visible(remedy));
    this.error.hidden = false;
  }

  /** A button that is disabled loses the focus to the page behind: this one only says so. */
  #show() {
    this.form.classList.toggle("busy", this.#busy);
    setAttr(this.confirm, "aria-disabled", this.#busy ? "true" : null);
  }

  async #submit() {
    if (this.#busy) return;
    this.error.hidden = true;
    if (!this.form.reportValidity()) return;
    this.#busy = true;
    this.#show();
    try {
      await this.onSubmit();
    } catch (error) {
      if (this.isOpen) this.fail(error);
      else notify(visible(error.message), "failed");
    }
    this.#busy = false;
    this.#show();
  }
}

/** What the fields of an action look like. */
const FIELDS = {
  to: ({ model, partition }) => {
    const owner = model.partition(partition)?.owner ?? null;
    const there = [...model.workers.values()].filter(isThere).map(({ worker }) => worker);
    const options = there.sort(compareNames).map((id) => {
      const here = id === owner ? " (owns it now)" : "";
      return h("option", { value: id }, visible(id) + here);
    });
    const control = h(
      "select",
      { required: true },
      h("option", { value: "" }, "Choose a worker"),
      ...options,
    );
    return { element: field("To", control), value: () => control.value };
  },
  stay_away: () => {
    const control = h("input", { type: "checkbox" });
    const says = " It stays away: its process ends, or its client is told not to register again";
    const element = h("label", { class: "check" }, control, says);
    return { element, value: () => control.checked };
  },
};

/** Asks whether to do it, does it, tells what became of it. */
export function confirmAction(action, subject, context, send) {
  const title = subject === null ? action.verb : `${action.verb} ${visible(subject)}`;
  const modal = new Modal(`${title}?`, action);
  const fields = Object.fromEntries(
    (action.fields ?? []).map((key) => [key, FIELDS[key](context)]),
  );
  const reason = reasonField();
  const effects = action.effects(context).map((text) => h("li", {}, text));
  modal.body.append(
    h("h3", {}, "What will happen"),
    h("ul", { class: "effects" }, ...effects),
    ...Object.values(fields).map(({ element }) => element),
    reason.element,
  );
  setText(modal.confirm, title);
  modal.onSubmit = async () => {
    const entries = Object.entries(fields).map(([key, { value }]) => [key, value()]);
    const values = Object.fromEntries(entries);
    setText(modal.confirm, "Waiting for the effect…");
    setText(modal.cancel, "Do not wait");
    try {
      const body = { request: action.request(context, values), why: reason.control.value.trim() };
      const { took_ms: took, text } = await send("/requests", body);
      notify(`${title}: ${visible(text || "done")}${took ? ` (${duration(took)})` : ""}`);
      if (modal.isOpen) modal.close();
    } finally {
      setText(modal.confirm, title);
      setText(modal.cancel, "Cancel");
    }
  };
  modal.open();
}

/** Resets checkpoints: a dry run first, then for real. */
export function resetCheckpoints(ids, context, send) {
  const subject =
    ids.length === 1 ? `checkpoint of ${visible(ids[0])}` : `${count(ids.length)} checkpoints`;
  const modal = new Modal(`Reset ${subject}?`, { grave: true });
  const to = h(
    "select",
    {},
    h("option", { value: "earliest" }, "The oldest message there is"),
    h("option", { value: "latest" }, "The end: skip what is there"),
    h("option", { value: "offset" }, "An offset"),
    h("option", { value: "time" }, "A time"),
  );
  const offset = h("input", { inputmode: "numeric", autocomplete: "off" });
  const time = h("input", { type: "datetime-local", step: "1" });
  const force = h("input", { type: "checkbox" });
  const served = ids.filter((id) => (context.model.partition(id)?.owner ?? null) !== null).length;
  const forced =
    `Also where it is served now (${plural(served, "partition")}): ` +
    "the owner lets go of it first, or is fenced";
  const reason = reasonField();
  const [offsetField, timeField] = [
    field("Next offset", offset),
    field("First message from", time),
  ];
  const preview = h("div", { class: "preview", "aria-live": "polite" });
  modal.body.append(
    h("h3", {}, "What will happen"),
    h(
      "ul",
      { class: "effects" },
      h("li", {}, "Handling goes on at the new place, under a new epoch."),
      h("li", {}, "First a dry run shows every change. It changes nothing."),
    ),
    field("Go on at", to),
    offsetField,
    timeField,
    h("label", { class: "check" }, force, ` ${forced}`),
    reason.element,
    preview,
  );
  let tried = false; // whether a dry run has shown what is to be done
  const target = () => resetTarget({ to: to.value, offset: offset.value, time: time.value });
  const fresh = () => {
    tried = false;
    offsetField.hidden = to.value !== "offset";
    timeField.hidden = to.value !== "time";
    clear(preview);
    setText(modal.confirm, "Dry run");
  };
  for (const control of [to, offset, time, force]) control.addEventListener("input", fresh);
  fresh();
  modal.onSubmit = async () => {
    const body = {
      partitions: ids,
      to: target(),
      force: force.checked,
      why: reason.control.value.trim(),
    };
    const dry = !tried;
    setText(modal.confirm, dry ? "Looking…" : "Resetting…");
    try {
      const answer = await send("/checkpoints", { ...body, dry_run: dry });
      const changes = answer.changes;
      if (dry) {
        clear(preview).append(...previewOf(changes));
        if (answer.takes_over) preview.append(h("p", {}, TAKES_OVER));
        // Where it would change nothing, what is left is to look again: others go on meanwhile.
        tried = answer.takes_over || changesSomething(changes);
      } else {
        const done = changes.filter((change) => change.done).length;
        notify(`Reset: ${plural(done, "checkpoint")} of ${count(changes.length)} changed`);
        const odd = changes.find((change) => change.done && change.note !== null);
        if (odd) notify(`Partition ${visible(odd.partition)}: ${visible(odd.note)}`, "failed");
        modal.close();
      }
    } finally {
      setText(modal.confirm, tried ? `Reset ${subject}` : "Dry run");
    }
  };
  modal.open();
}

const TAKES_OVER =
  "The group began with another source than the one that this service has now. It goes on with " +
  "this one then, and no longer with the other.";

function previewOf(changes) {
  const rows = changes
    .slice(0, CHANGES_SHOWN)
    .map(({ partition, from, to, note }) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, name(partition)),
        h("td", { class: "number" }, count(from === null ? null : offsetOf(from))),
        h("td", { class: "number" }, count(to === null ? null : offsetOf(to))),
        h("td", {}, visible(note ?? "")),
      ),
    );
  const heads = ["Partition", "Next offset", "Becomes", ""].map((title, at) =>
    h("th", { scope: "col", class: at === 1 || at === 2 ? "number" : "" }, title),
  );
  const table = h(
    "table",
    { class: "grid" },
    h("thead", {}, h("tr", {}, ...heads)),
    h("tbody", {}, ...rows),
  );
  const rest = changes.length - rows.length;
  return [
    h("h3", {}, "Dry run"),
    h("p", {}, resetSummary(changes)),
    h("div", { class: "table-box" }, table),
    rest > 0 ? h("p", { class: "muted" }, `and ${count(rest)} more`) : "",
  ];
}

/** Asks for a token. Resolves to it, or to `null`. */
export function askToken(why) {
  return new Promise((answer) => {
    const modal = new Modal("Token");
    const token = h("input", {
      type: "password",
      required: true,
      autocomplete: "off",
      spellcheck: "false",
    });
    modal.body.append(
      h("p", {}, visible(why)),
      field("Token", token, "It is kept for this tab only, until you close it."),
    );
    setText(modal.confirm, "Use it");
    modal.dialog.addEventListener("close", () => answer(null));
    modal.onSubmit = async () => {
      answer(token.value.trim());
      modal.close();
    };
    modal.open();
  });
}
