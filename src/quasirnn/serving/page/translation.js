// A sentence, its translations, and where the model looked while it wrote each of them.

import { AttentionMap } from "./attention.js";
import { Entry } from "./entry.js";
import { Messages } from "./messages.js";
import { ApiError, post } from "./server.js";
import { showUnknown } from "./unknown.js";

export class Translation {
  task = "translation";

  constructor(panel) {
    this.form = panel.querySelector("form");
    this.messages = new Messages(panel);
    this.entry = new Entry(panel, () => this.translate());
    this.entry.sendWith(this.form);
    this.best = panel.querySelector("#best");
    this.list = panel.querySelector("#hypotheses");
    this.figure = panel.querySelector("#attention");
    this.cut = panel.querySelector("#too-long");
    this.unknown = panel.querySelector(".unknown");
    this.map = new AttentionMap(panel.querySelector("#attention-map"), panel.querySelector("#attention-readout"));
    this.list.addEventListener("change", (event) => this.choose(Number(event.target.value)));
  }

  use(model, limits) {
    const first = !this.model;
    this.model = model;
    this.limits = limits;
    this.entry.use(model, limits.translate_characters);
    const { beam, n_best, alpha } = this.form.elements;
    [beam.min, beam.max] = [n_best.min, n_best.max] = [1, limits.beam];
    [alpha.min, alpha.max] = [0, limits.alpha];
    if (first) this.entry.text = model.examples[0] ?? "";
    if (this.entry.text.trim()) this.translate();
  }

  resume() {
    if (this.unanswered) this.translate();
  }

  /** An answer is shown only if nothing was asked since: the request before is dropped. */
  async translate() {
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    const { beam, n_best, alpha } = this.form.elements;
    const text = this.entry.text.replaceAll(/\s*\n\s*/g, " ");
    this.form.setAttribute("aria-busy", "true");
    this.unanswered = true;
    try {
      const answer = await post(
        "/translate",
        {
          model: this.model.name,
          text,
          beam: requiredIn(beam),
          n_best: requiredIn(n_best),
          alpha: requiredIn(alpha),
          attention: text.length <= this.limits.attention_characters && n_best.value <= this.limits.attention_n_best,
        },
        { signal, busy: this.messages.busy },
      );
      this.messages.clear();
      this.unanswered = false;
      this.show(answer);
    } catch (error) {
      if (signal.aborted) return;
      this.messages.clear();
      this.messages.show(error);
      if (error instanceof ApiError) this.show(null);
    }
    this.form.removeAttribute("aria-busy");
  }

  /** The translations of an answer; without one, those of another text must not stay. */
  show(answer) {
    this.answer = answer;
    showUnknown(this.unknown, answer?.unknown ?? []);
    if (!answer) {
      this.best.textContent = "";
      this.list.hidden = this.figure.hidden = this.cut.hidden = true;
      return;
    }
    const rows = answer.translations.map((hypothesis, at) => {
      const row = document.createElement("label");
      const radio = document.createElement("input");
      Object.assign(radio, { type: "radio", name: "hypothesis", value: String(at), checked: at === 0 });
      const text = document.createElement("span");
      text.lang = this.model.target ?? "";
      text.textContent = hypothesis.text + (hypothesis.finished ? "" : " …");
      const score = document.createElement("span");
      score.className = "figures";
      score.textContent = hypothesis.score.toFixed(3).replace("-", "−");
      row.append(radio, text, score);
      return row;
    });
    this.list.replaceChildren(this.list.firstElementChild, ...rows);
    this.list.hidden = rows.length < 2;
    this.choose(0);
  }

  choose(at) {
    const { text, characters, attention } = this.answer.translations[at];
    this.best.textContent = text;
    this.best.lang = this.model.target ?? "";
    this.figure.hidden = !attention?.length;
    this.cut.hidden = attention !== null;
    const { attention_characters: longest, attention_n_best: most } = this.limits;
    this.cut.textContent = `Attention is drawn for texts of up to ${longest} characters and ${most} translations.`;
    if (attention?.length) this.map.show(this.answer, characters, attention);
  }
}

/** What a field of numbers holds that must not be empty. */
export function requiredIn(field) {
  if (field.value === "") throw new ApiError(422, `${field.name}: enter a number.`, field.name);
  return Number(field.value);
}

/** What a field of numbers holds; null where it is empty. */
export function numberIn(field) {
  return field.value === "" ? null : Number(field.value);
}
