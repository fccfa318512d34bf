// A review that is read while it is typed: label, running probability, and the state of the network.

import { Entry } from "./entry.js";
import { drawLegend, HeatMap } from "./heat_map.js";
import { firstPiece, IncrementalReader } from "./incremental_reader.js";
import { Messages } from "./messages.js";
import { newest } from "./newest.js";
import { onSchemeChange } from "./palette.js";
import { Reading } from "./reading.js";
import { ApiError, NoAnswer, post } from "./server.js";
import { showUnknown } from "./unknown.js";

const PAUSE = 60; // milliseconds without a key before an unfinished word is read
const NAMES = {
  c: "c, the cell state",
  h: "h, the output",
  z: "z, the candidate",
  f: "f, the forget gate",
  o: "o, the output gate",
  i: "i, the input gate",
};

export class Sentiment {
  task = "sentiment";

  constructor(panel) {
    this.messages = new Messages(panel);
    this.entry = new Entry(panel, () => this.changed());
    [this.label, this.probability] = [panel.querySelector("#label"), panel.querySelector("#probability")];
    [this.layer, this.what] = [panel.querySelector("#layer"), panel.querySelector("#what")];
    this.caption = panel.querySelector("#bars-caption");
    this.cut = panel.querySelector("#cut");
    this.unknown = panel.querySelector(".unknown");
    this.readout = panel.querySelector("#readout");
    this.panel = panel;
    this.read = [];
    this.map = null;
    this.reading = new Reading(panel.querySelector("#strip"), (at) => this.point(at));
    this.readText = newest((text) => this.readNow(text));
    this.fetchStates = newest((text) => this.fetchStatesNow(text));

    this.entry.field.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.changed(), /\s$/.test(this.entry.text) ? 0 : PAUSE);
    });
    for (const select of [this.layer, this.what]) {
      select.addEventListener("change", () => this.fetchStates(this.entry.text));
    }
    onSchemeChange(() => this.legend());
  }

  use(model, limits) {
    this.model = model;
    this.limits = limits;
    this.reader = new IncrementalReader((text, state) => this.ask(text, state), limits.stream_characters);
    this.entry.use(model, limits.classify_characters);
    const layers = Array.from({ length: model.layers }, (_, at) => String(at + 1));
    fill(this.layer, layers.map((layer) => [layer, layer]), layers.at(-1));
    fill(this.what, (model.gates ?? []).map((gate) => [gate, NAMES[gate] ?? gate]), "c");
    const states = model.by_word && model.gates;
    this.panel.querySelector("#map-controls").hidden = !states;
    const without = this.panel.querySelector("#no-states");
    without.hidden = Boolean(states);
    without.textContent = model.by_word
      ? "Only a QRNN's states can be shown: this model is an LSTM."
      : "This model reads whole texts only: no states are shown word by word.";
    this.reading.place.hidden = this.caption.hidden = !model.by_word;
    const [low, high] = model.classes;
    const two = `above the line ${isolated(high)}, below it ${isolated(low)}`;
    this.caption.textContent = model.classes.length === 2 ? two : "the probability of the label, from 0 to 1";
    this.map = null;
    this.reading.showMap(null, model.gates ? Infinity : 0);
    if (!this.entry.text) this.entry.text = model.examples[0] ?? "";
    this.changed();
  }

  /** The server is back: requests that were lost are sent again. */
  resume() {
    this.changed();
  }

  changed() {
    clearTimeout(this.timer);
    this.readText(this.entry.text);
  }

  ask(text, state) {
    return post("/classify-stream", { model: this.model.name, text, state }, { busy: this.messages.busy });
  }

  async readNow(text) {
    const { reader, model } = this;
    try {
      const read = model.by_word
        ? await this.withFreshState(reader, () => reader.read(text))
        : await this.readWhole(text);
      if (model !== this.model) return;
      this.messages.clear();
      this.show(read);
      if (model.by_word && model.gates && read.length) this.fetchStates(text);
    } catch (error) {
      this.messages.show(error);
    }
  }

  /** A model that cannot read word by word gives one result for all words. */
  async readWhole(text) {
    if (!text.trim()) return [];
    const asked = { model: this.model.name, texts: [text] };
    const { results } = await post("/classify", asked, { busy: this.messages.busy });
    return results;
  }

  /** A state of a model that has since been replaced under the same name is refused; then the text is read anew. */
  async withFreshState(reader, read) {
    try {
      return await read();
    } catch (error) {
      if (!(error instanceof ApiError) || error.field !== "state") throw error;
      reader.startOver();
      return read();
    }
  }

  show(read) {
    this.read = read;
    const last = read.at(-1);
    const { classes } = this.model;
    const followed = classes.length === 2 ? classes[1] : last?.label;
    this.label.textContent = last?.label ?? "";
    this.probability.textContent = last ? last.probability.toFixed(3) : "";
    const unknown = this.model.by_word
      ? read.filter((each) => each.unknown).map(({ word }) => word)
      : read.flatMap((each) => each.unknown);
    showUnknown(this.unknown, unknown);
    this.shorten();
    if (!this.model.by_word) return;
    this.reading.show(
      read.map(({ word }) => word),
      read.map((each) => each.unknown),
      // With very many classes the response has the likeliest only.
      read.map(({ probabilities }) => probabilities[followed] ?? 0),
      classes.length === 2 ? 0.5 : 0,
    );
  }

  async fetchStatesNow(text) {
    const { model, limits } = this;
    const [layer, what] = [Number(this.layer.value), this.what.value];
    const part = firstPiece(text, limits.states_characters);
    if (!part.trim()) return;
    try {
      const asked = { model: model.name, text: part, layer, what };
      const states = await post("/states", asked, { busy: this.messages.busy });
      if (model !== this.model) return;
      this.map = new HeatMap(states, what, this.map);
      this.reading.showMap(this.map, part === text ? Infinity : this.map.words.length);
      this.legend();
      this.shorten();
    } catch (error) {
      if (!(error instanceof NoAnswer)) this.messages.show(error);
    }
  }

  legend() {
    if (!this.map) return;
    const { least, most } = this.map;
    drawLegend(this.panel.querySelector("#legend"), least, most);
    this.panel.querySelector("#least").textContent = String(least).replace("-", "−");
    this.panel.querySelector("#most").textContent = String(most);
  }

  shorten() {
    const longest = this.limits.states_characters;
    this.cut.hidden = !this.map || this.entry.text.length <= longest;
    this.cut.textContent = `States are shown of the first ${longest.toLocaleString("en")} characters.`;
  }

  point(at) {
    if (!at) return void (this.readout.textContent = "");
    const { word, label, probability, unknown } = this.read[at.at];
    const parts = [isolated(`“${word}”`), isolated(`${label} ${probability.toFixed(3)}`)];
    if (unknown) parts.push("not in the vocabulary");
    if (this.map && at.at < this.map.covers(this.reading.words)) {
      parts.push(`mean f ${this.map.forget[at.at].toFixed(2)}`);
      if (at.channel !== null) {
        parts.push(`channel ${at.channel}: ${this.map.values[at.at][at.channel].toFixed(2).replace("-", "−")}`);
      }
    }
    this.readout.textContent = parts.join("   ");
  }
}

/** A word or a label may be written from right to left; the text around it must not change direction. */
function isolated(text) {
  return `\u2068${text}\u2069`;
}

function fill(select, pairs, chosen) {
  const before = select.value;
  select.replaceChildren(...pairs.map(([value, name]) => new Option(name, value)));
  select.value = pairs.some(([value]) => value === before) ? before : chosen;
}
