// The attention of a translator: source across, target down; the stronger the colour, the larger the weight.

import { asStyle, colours, onSchemeChange } from "./palette.js";
import { watchPointer } from "./pointer.js";

// In pixels of the page.
const ROOMIEST = 22;
const TIGHTEST = 13;
const LEGIBLE = 10;
const LONGEST_SIDE = 8000;
const MOST_PIXELS = 32e6;
const END = "∎";

export class AttentionMap {
  constructor(canvas, readout) {
    this.canvas = canvas;
    this.readout = readout;
    this.at = null;
    const frame = canvas.parentElement;
    new ResizeObserver(() => frame.clientWidth !== this.room && this.draw()).observe(frame);
    onSchemeChange(() => this.draw());
    watchPointer(canvas, (event) => this.pointAt(event), () => this.choose(null));
    canvas.addEventListener("blur", () => this.choose(null));
    canvas.addEventListener("keydown", (event) => this.step(event));
  }

  /**
   * @param read the answer: the characters of the source, and those of them that the model does not know
   * @param weights a row for each character of the target, a column for each of the source; a row sums to 1
   */
  show({ source, unknown }, target, weights) {
    [this.source, this.target, this.weights] = [source, target, weights];
    this.unknown = new Set(unknown);
    this.most = Math.max(...weights.map((row) => Math.max(...row))) || 1;
    this.at = null;
    this.readout.textContent = "";
    const sizes = `${target.length} target characters over ${source.length} source characters`;
    this.canvas.setAttribute("aria-label", `Attention of ${sizes}`);
    this.draw();
  }

  draw() {
    this.room = this.canvas.parentElement.clientWidth;
    if (!this.room || !this.weights) return;
    const [S, T] = [this.source.length, this.target.length];
    const fitting = Math.floor(this.room / (S + 2));
    const largest = Math.floor(LONGEST_SIDE / Math.max(S, T));
    const cell = Math.max(2, Math.min(ROOMIEST, Math.max(TIGHTEST, fitting), largest));
    const margin = cell >= LEGIBLE ? Math.round(cell * 1.4) : 0;
    [this.cell, this.margin] = [cell, margin];
    const [width, height] = [margin + S * cell + 1, margin + T * cell + 1];
    const sharpness = Math.min(window.devicePixelRatio || 1, Math.sqrt(MOST_PIXELS / (width * height)));
    this.canvas.width = Math.round(width * sharpness);
    this.canvas.height = Math.round(height * sharpness);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(sharpness, sharpness);
    this.drawCells(context, sharpness);
    if (margin) this.drawLabels(context);
    this.drawChosen(context);
  }

  /** Cells end at whole pixels of the screen, or seams would show between them. */
  drawCells(context, sharpness) {
    const { cell, margin } = this;
    const edge = (at) => Math.round((margin + at * cell) * sharpness) / sharpness;
    const colour = colours(0, this.most);
    this.weights.forEach((row, t) => {
      row.forEach((weight, s) => {
        context.fillStyle = asStyle(colour(weight));
        context.fillRect(edge(s), edge(t), edge(s + 1) - edge(s), edge(t + 1) - edge(t));
      });
    });
    context.strokeStyle = this.ink("--line");
    context.strokeRect(margin + 0.5, margin + 0.5, this.source.length * cell, this.target.length * cell);
  }

  drawLabels(context) {
    const { cell, margin } = this;
    context.font = `${Math.round(cell * 0.72)}px ${getComputedStyle(this.canvas).fontFamily}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const write = (character, x, y, chosen, wrong = false) => {
      const mark = character === " " || character === "";
      context.fillStyle = this.ink(chosen ? "--accent" : mark ? "--faint" : wrong ? "--wrong" : "--ink");
      context.fillText(character === " " ? "␣" : character === "" ? END : character, x, y);
    };
    this.source.forEach((each, s) =>
      write(each, margin + (s + 0.5) * cell, margin * 0.45, this.at?.s === s, this.unknown.has(each)),
    );
    this.target.forEach((each, t) => write(each, margin * 0.45, margin + (t + 0.5) * cell, this.at?.t === t));
  }

  drawChosen(context) {
    if (!this.at) return;
    const { cell, margin } = this;
    context.strokeStyle = this.ink("--ink");
    context.lineWidth = 1.5;
    context.strokeRect(margin + this.at.s * cell, margin + this.at.t * cell, cell, cell);
  }

  ink(name) {
    return getComputedStyle(this.canvas).getPropertyValue(name);
  }

  pointAt(event) {
    const s = Math.floor((event.offsetX - this.margin) / this.cell);
    const t = Math.floor((event.offsetY - this.margin) / this.cell);
    const inside = s >= 0 && t >= 0 && s < this.source.length && t < this.target.length;
    this.choose(inside ? { s, t } : null);
  }

  step(event) {
    const move = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const limit = (value, size) => Math.max(0, Math.min(size - 1, value));
    const from = this.at ?? { s: 0, t: 0 };
    const by = this.at ? move : [0, 0];
    this.choose({ s: limit(from.s + by[0], this.source.length), t: limit(from.t + by[1], this.target.length) });
  }

  choose(at) {
    if (at?.s === this.at?.s && at?.t === this.at?.t) return;
    this.at = at;
    this.draw();
    const name = (character) => (character === "" ? "the end" : character === " " ? "a space" : `“${character}”`);
    if (!at) return void (this.readout.textContent = "");
    const weight = this.weights[at.t][at.s].toFixed(3);
    this.readout.textContent = `target ${name(this.target[at.t])}, source ${name(this.source[at.s])}: ${weight}`;
  }
}
