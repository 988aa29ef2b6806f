// What if: how each strategy would spread the partitions, and what would move. Changes nothing.

import { parseWeights } from "./actions.js";
import { card, clear, h, name, setAttr, setText } from "./dom.js";
import { compareNames, count, visible, words } from "./format.js";
import { isThere } from "./model.js";

export class WhatIf {
  #model;
  #ask;
  #chips = new Map();
  #busy = false;

  constructor(model, ask) {
    this.#model = model;
    this.#ask = ask;
    this.add = h("input", { type: "number", min: "0", max: "1000", value: "1", id: "plan-add" });
    this.weights = h("input", { id: "plan-weights", placeholder: "7=5, 9=2", autocomplete: "off" });
    this.remove = h("div", { class: "chips" });
    this.error = h("p", { class: "error", role: "alert", hidden: true });
    this.result = h("div", { "aria-live": "polite" });
    this.submit = h("button", { type: "submit", class: "primary" }, "Compare strategies");
    const form = h(
      "form",
      { class: "whatif", novalidate: true },
      h("div", { class: "field" }, h("label", { for: "plan-add" }, "Workers that join"), this.add),
      h(
        "div",
        { class: "field wide" },
        h("label", { for: "plan-weights" }, "Weights"),
        this.weights,
      ),
      h("fieldset", { class: "field all" }, h("legend", {}, "Workers that go"), this.remove),
      this.submit,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#compare();
    });
    const note = h("span", { class: "muted" }, "Changes nothing");
    this.element = card("whatif", "What if", [note], form, this.error, this.result);
  }

  render() {
    const there = [...this.#model.workers.values()].filter(isThere).map(({ worker }) => worker);
    const wanted = new Set(there);
    for (const [id, chip] of this.#chips) {
      if (wanted.has(id)) continue;
      // Whoever is at it by keyboard stays in this form.
      if (chip.contains(document.activeElement)) this.submit.focus({ preventScroll: true });
      chip.remove();
      this.#chips.delete(id);
    }
    // Those that are there stay the same elements: one may have the focus.
    let place = this.remove.firstChild;
    for (const id of there) {
      let chip = this.#chips.get(id);
      if (chip === undefined) {
        const box = h("input", { type: "checkbox", value: id });
        this.#chips.set(id, (chip = h("label", { class: "chip" }, box, name(id))));
        this.remove.insertBefore(chip, place);
      }
      place = chip.nextSibling;
    }
  }

  #removed() {
    return [...this.remove.querySelectorAll("input:checked")].map(({ value }) => value);
  }

  async #compare() {
    if (this.#busy) return;
    this.error.hidden = true;
    this.#wait(true);
    try {
      const gone = new Set(this.#removed());
      const outcomes = await this.#ask({
        add: Number(this.add.value) || 0,
        remove: [...gone],
        weights: parseWeights(this.weights.value),
        strategies: ["consistent_hash", "round_robin", "fair_share"],
      });
      clear(this.result).append(
        h("div", { class: "plans" }, strategies(outcomes), shares(outcomes, gone)),
      );
    } catch (error) {
      setText(this.error, visible(`${error.message} ${error.remedy ?? ""}`));
      this.error.hidden = false;
    }
    this.#wait(false);
  }

  /** A button that is disabled loses the focus: this one only says so. */
  #wait(busy) {
    this.#busy = busy;
    setAttr(this.submit, "aria-disabled", busy ? "true" : null);
  }
}

function strategies(outcomes) {
  const titles = ["Strategy", "Balance", "By count", "Moved", "Least", "Placed", "Unserved"];
  const hints = {
    Balance: "The largest share by weight against the mean; 1 is perfect",
    Least: "The least that had to be taken from workers that stay, for even counts",
    Placed: "Given out that nobody had",
  };
  const head = titles.map((title, at) =>
    h("th", { scope: "col", class: at > 0 ? "number" : "", title: hints[title] ?? null }, title),
  );
  const number = (text) => h("td", { class: "number" }, text);
  const rows = outcomes.map((outcome) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, words(visible(outcome.strategy))),
      number(outcome.balance_by_weight.toFixed(3)),
      number(outcome.balance_by_count.toFixed(3)),
      number(count(outcome.moved)),
      number(count(outcome.least_moved)),
      number(count(outcome.placed)),
      number(count(outcome.unserved)),
    ),
  );
  return tableOf("Strategies", head, rows);
}

function shares(outcomes, gone) {
  const workers = new Set(outcomes.flatMap(({ workers }) => Object.keys(workers)));
  const head = [h("th", { scope: "col" }, "Worker")];
  for (const { strategy } of outcomes) {
    head.push(h("th", { scope: "col", class: "number" }, words(visible(strategy))));
  }
  const rows = [...workers].sort(compareNames).map((id) => {
    const cells = outcomes.map(({ workers }) =>
      h("td", { class: "number" }, shareText(workers[id], gone.has(id))),
    );
    return h("tr", {}, h("th", { scope: "row" }, name(id)), ...cells);
  });
  return tableOf("Shares", head, rows);
}

function shareText(share, isGone) {
  if (!share) return "–";
  const { before, after } = share;
  if (isGone) return `${count(before)} → gone`;
  return before === after ? count(after) : `${count(before)} → ${count(after)}`;
}

function tableOf(label, head, rows) {
  const table = h(
    "table",
    { class: "grid", "aria-label": label },
    h("thead", {}, h("tr", {}, ...head)),
  );
  table.append(h("tbody", {}, ...rows));
  return h("div", { class: "table-box", tabindex: "0" }, table);
}
