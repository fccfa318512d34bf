// A text as it is read, in lines like a musical score: above each word the probability and the state of the network.

import { onSchemeChange } from "./palette.js";
import { watchPointer } from "./pointer.js";

// In pixels of the page. 128 divides, or is divided by, common numbers of channels.
const BARS = 42;
const GAP = 6;
const MAP = 128;
const PADDING = 9;
const NARROWEST = 16;
const WIDEST = 180;

export class Reading {
  /**
   * @param place the element that the lines go into; arrow keys go from word to word while it has the focus
   * @param tell called with what is pointed at, {at, channel} or null
   */
  constructor(place, tell) {
    this.place = place;
    this.tell = tell;
    this.words = [];
    this.unknown = [];
    this.series = [];
    this.baseline = 0.5;
    this.map = null;
    this.reach = Infinity;
    this.visible = 0;
    this.lines = [];
    this.at = null;
    this.still = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.ruler = new OffscreenCanvas(1, 1).getContext("2d");
    new ResizeObserver(() => this.place.clientWidth !== this.width && this.layOut()).observe(place);
    onSchemeChange(() => this.draw());
    watchPointer(place, (event) => this.pointAt(event), () => this.choose(null));
    place.addEventListener("blur", () => this.choose(null));
    place.addEventListener("keydown", (event) => this.step(event));
  }

  /**
   * Show a text. The part that it shares with the previous one stays, the rest appears word by word.
   *
   * @param words strings
   * @param unknown of each, whether the model does not know it
   * @param series the probability after each word
   * @param baseline where its steps begin: 0.5 between two classes, else 0
   */
  show(words, unknown, series, baseline) {
    let same = 0;
    while (same < Math.min(this.words.length, words.length) && this.words[same] === words[same]) same++;
    const goesOn = same > 0 && same === this.words.length;
    [this.words, this.unknown, this.series, this.baseline] = [words, unknown, series, baseline];
    this.visible = Math.min(this.visible, same);
    if (this.at?.at >= same) this.choose(null);
    this.layOut();
    if (goesOn) this.place.scrollTop = this.place.scrollHeight;
    this.grow();
  }

  /**
   * @param map the heat map, or null until it has arrived
   * @param reach words that it can cover: no room is reserved above later lines; 0 for a model that has none
   */
  showMap(map, reach) {
    [this.map, this.reach] = [map, reach];
    this.draw();
  }

  grow() {
    cancelAnimationFrame(this.frame);
    const rest = this.words.length - this.visible;
    if (rest <= 0) return;
    const before = this.visible;
    this.visible = this.still.matches ? this.words.length : Math.min(this.words.length, before + Math.ceil(rest / 24));
    this.draw(before);
    this.frame = requestAnimationFrame(() => this.grow());
  }

  /** Break the words into lines, keeping the elements of lines that have not changed. */
  layOut() {
    this.width = this.place.clientWidth;
    if (!this.width) return;
    this.ruler.font = getComputedStyle(this.place).font;
    const broken = [];
    let line = null;
    this.words.forEach((word, at) => {
      const width = Math.min(WIDEST, Math.max(NARROWEST, Math.ceil(this.ruler.measureText(word).width) + PADDING));
      if (!line || line.width + width > this.width) {
        line = { start: at, end: at, width: 0, lefts: [], words: [], unknown: [] };
        broken.push(line);
      }
      line.lefts.push(line.width);
      line.words.push(word);
      line.unknown.push(Boolean(this.unknown[at]));
      line.width += width;
      line.end = at + 1;
    });
    let kept = 0;
    while (kept < Math.min(broken.length, this.lines.length) && alike(broken[kept], this.lines[kept])) {
      broken[kept].element = this.lines[kept].element;
      kept++;
    }
    for (const old of this.lines.slice(kept)) old.element.remove();
    for (const added of broken.slice(kept)) this.place.append((added.element = this.elementOf(added)));
    this.lines = broken;
    this.draw();
  }

  elementOf(line) {
    const element = document.createElement("div");
    element.className = "line";
    const canvas = document.createElement("canvas");
    canvas.setAttribute("aria-hidden", "true");
    const words = document.createElement("p");
    line.words.forEach((word, at) => {
      const span = document.createElement("span");
      span.textContent = word;
      if (line.unknown[at]) [span.title, span.dataset.unknown] = ["not in the vocabulary", ""];
      span.style.width = `${(line.lefts[at + 1] ?? line.width) - line.lefts[at]}px`;
      words.append(span);
    });
    element.append(canvas, words);
    return element;
  }

  /** Draw the lines that hold words from `from` on. */
  draw(from = 0) {
    const covered = this.map ? this.map.covers(this.words) : 0;
    const style = getComputedStyle(this.place);
    const ink = { bar: style.getPropertyValue("--accent"), rule: style.getPropertyValue("--line") };
    for (const line of this.lines) {
      if (line.end <= from) continue;
      const spans = line.element.lastChild.children;
      for (let at = line.start; at < line.end; at++) {
        spans[at - line.start].className = at >= this.visible ? "coming" : at === this.at?.at ? "chosen" : "";
      }
      this.drawLine(line, Math.min(covered, this.visible), ink);
    }
    this.place.dataset.words = this.visible;
    this.place.dataset.columns = Math.min(covered, this.visible);
  }

  drawLine(line, covered, ink) {
    const sharpness = window.devicePixelRatio || 1;
    const canvas = line.element.firstChild;
    const withMap = line.start < this.reach;
    const height = withMap ? BARS + GAP + MAP : BARS;
    canvas.width = Math.round(line.width * sharpness);
    canvas.height = Math.round(height * sharpness);
    canvas.style.width = `${line.width}px`;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    const edge = (left) => Math.round(left * sharpness);
    const edges = [...line.lefts.map(edge), canvas.width];
    const high = (p) => Math.round((2 + (1 - p) * (BARS - 4)) * sharpness);

    const zero = high(this.baseline);
    const pixel = Math.max(1, Math.round(sharpness));
    const shown = Math.max(0, Math.min(line.end, this.visible) - line.start);
    context.fillStyle = ink.rule;
    context.fillRect(0, zero, edges[shown], pixel);
    context.fillStyle = ink.bar;
    for (let at = 0; at < shown; at++) {
      const end = high(this.series[line.start + at]);
      const [left, width] = [edges[at], edges[at + 1] - edges[at]];
      context.globalAlpha = 0.22;
      context.fillRect(left, Math.min(end, zero), width, Math.abs(end - zero));
      context.globalAlpha = 1;
      context.fillRect(left, end - pixel, width, 2 * pixel);
    }

    const columns = Math.min(line.end, covered) - line.start;
    if (!withMap || columns <= 0) return;
    const top = Math.round((BARS + GAP) * sharpness);
    const rows = canvas.height - top;
    const picture = this.map.columns(line.start, line.start + columns, rows);
    context.imageSmoothingEnabled = false;
    for (let at = 0; at < columns; at++) {
      context.drawImage(picture, at, 0, 1, rows, edges[at], top, edges[at + 1] - edges[at], rows);
    }
  }

  pointAt(event) {
    const line = this.lines.find(({ element }) => element.contains(event.target));
    if (!line) return this.choose(null);
    const box = line.element.firstChild.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top - BARS - GAP;
    const at = line.start + line.lefts.findLastIndex((left) => left <= x);
    const inside = x < line.width && at < this.visible;
    this.choose(inside ? { at, channel: this.map && y >= 0 && y < MAP ? this.map.channelAt(y / MAP) : null } : null);
  }

  step(event) {
    const move = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!move || !this.visible) return;
    event.preventDefault();
    const from = this.at?.at ?? (move > 0 ? -1 : this.visible);
    const at = Math.max(0, Math.min(this.visible - 1, from + move));
    this.choose({ at, channel: null });
    this.lines.find((line) => at < line.end).element.scrollIntoView({ block: "nearest" });
  }

  choose(at) {
    if (at === this.at || (at && this.at && at.at === this.at.at && at.channel === this.at.channel)) return;
    this.at = at;
    for (const span of this.place.querySelectorAll(".chosen")) span.className = "";
    if (at) {
      const line = this.lines.find(({ end }) => at.at < end);
      line.element.lastChild.children[at.at - line.start].className = "chosen";
    }
    this.tell(at);
  }
}

function alike(a, b) {
  const sizes = a.start === b.start && a.end === b.end && a.width === b.width;
  return sizes && a.words.every((word, at) => word === b.words[at] && a.unknown[at] === b.unknown[at]);
}
