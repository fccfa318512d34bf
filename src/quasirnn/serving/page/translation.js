// A sentence, its translations, and where the model looked while it wrote each of them.

import { AttentionMap } from "./attention.js";
import { Entry } from "./entry.js";
import { Messages } from "./messages.js";
import { post } from "./server.js";

export class Translation {
  task = "translation";

  constructor(panel) {
    this.form = panel.querySelector("form");
    this.messages = new Messages(panel);
    this.entry = new Entry(panel, () => this.translate());
    this.entry.sendOnEnter(this.form);
    this.best = panel.querySelector("#best");
    this.list = panel.querySelector("#hypotheses");
    this.figure = panel.querySelector("#attention");
    this.cut = panel.querySelector("#too-long");
    this.map = new AttentionMap(panel.querySelector("#attention-map"), panel.querySelector("#attention-readout"));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.translate();
    });
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
          beam: numberIn(beam),
          n_best: numberIn(n_best),
          alpha: numberIn(alpha),
          attention: text.length <= this.limits.attention_characters,
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
    }
    this.form.removeAttribute("aria-busy");
  }

  show(answer) {
    this.answer = answer;
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
    this.cut.textContent = `Attention is drawn for texts of up to ${this.limits.attention_characters} characters.`;
    if (attention?.length) this.map.show(this.answer.source, characters, attention);
  }
}

/** What a field of numbers holds; null where it is empty, and the server says what it thinks of that. */
export function numberIn(field) {
  return field.value === "" ? null : Number(field.value);
}
