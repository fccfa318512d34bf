// A text that a language model continues, shown as it arrives.

import { Entry } from "./entry.js";
import { Messages } from "./messages.js";
import { NoAnswer, stream } from "./server.js";
import { showUnknown } from "./unknown.js";
import { numberIn, requiredIn } from "./translation.js";

export class Generation {
  task = "language-model";

  constructor(panel) {
    this.form = panel.querySelector("form");
    this.messages = new Messages(panel);
    this.entry = new Entry(panel, () => this.go());
    this.entry.sendWith(this.form);
    [this.act, this.stop] = [panel.querySelector(".act"), panel.querySelector(".stop")];
    [this.output, this.given, this.written] = ["#text", "#given", "#written"].map((id) => panel.querySelector(id));
    this.speed = panel.querySelector("#speed");
    this.unknown = panel.querySelector(".unknown");
    // By name: `elements.length` would be their number.
    const names = ["temperature", "length", "top_k", "seed"];
    this.fields = Object.fromEntries(names.map((name) => [name, this.form.elements.namedItem(name)]));
    this.fields.temperature.addEventListener("input", () => this.warmth());
    this.stop.addEventListener("click", () => this.asking.abort());
  }

  use(model, limits) {
    const first = !this.model;
    this.model = model;
    this.entry.use(model, limits.prompt_characters);
    const { length, top_k, seed } = this.fields;
    [length.min, length.max] = [1, limits.length];
    [top_k.min, top_k.max] = [1, model.vocabulary_size];
    [seed.min, seed.max] = [0, limits.seed];
    if (first) this.entry.text = model.examples[0] ?? "";
    this.warmth();
    this.go();
  }

  resume() {
    if (this.brokenOff) this.go();
  }

  warmth() {
    this.form.querySelector("#warmth").textContent = Number(this.fields.temperature.value).toFixed(2);
  }

  /** Only the last request writes: the previous one is aborted, which ends it on the server too. */
  async go() {
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    const { temperature, length, top_k, seed } = this.fields;
    this.brokenOff = false;
    this.messages.clear();
    this.begin();
    try {
      await stream(
        "/generate",
        {
          model: this.model.name,
          prompt: this.entry.text,
          length: requiredIn(length),
          temperature: requiredIn(temperature),
          top_k: numberIn(top_k),
          top_p: null,
          seed: numberIn(seed),
        },
        (name, data) => this.take(name, data),
        { signal, busy: this.messages.busy },
      );
    } catch (error) {
      if (signal !== this.asking.signal) return;
      if (signal.aborted) this.speed.textContent = `Stopped after ${this.counted(this.pieces)}.`;
      else this.messages.show(error);
      this.brokenOff = error instanceof NoAnswer;
    }
    this.end();
  }

  begin() {
    this.pieces = 0;
    this.output.setAttribute("aria-busy", "true");
    this.given.textContent = this.entry.text;
    this.written.textContent = "";
    this.speed.textContent = "";
    showUnknown(this.unknown, []);
    this.stop.hidden = false;
    if (document.activeElement === this.act) this.stop.focus();
    this.act.hidden = true;
  }

  take(name, data) {
    if (name === "piece") {
      this.messages.clear();
      this.written.append(data.text);
      this.pieces += 1;
    }
    if (name === "end") {
      showUnknown(this.unknown, data.unknown);
      const rate = data.seconds > 0 ? `, ${Math.round(data.tokens / data.seconds).toLocaleString("en")} a second` : "";
      this.speed.textContent = `${this.counted(data.tokens)} in ${data.seconds.toFixed(2)} s${rate}.`;
    }
  }

  end() {
    this.output.removeAttribute("aria-busy");
    this.act.hidden = false;
    if (document.activeElement === this.stop) this.act.focus();
    this.stop.hidden = true;
  }

  counted(number) {
    const unit = this.model.level === "character" ? "character" : "word";
    return `${number.toLocaleString("en")} ${unit}${number === 1 ? "" : "s"}`;
  }
}
