// The state of one layer while it reads: a column for each word, a row for each channel, similar ones adjacent.

import { channelOrder } from "./channel_order.js";
import { colours } from "./palette.js";

const GATES = ["f", "o", "i"];

export class HeatMap {
  /**
   * @param states the response: words, values (T rows of H), forget
   * @param what which activation: gates get a scale from 0 to 1, all others one around zero
   * @param before the map of a shorter text, whose order of channels is kept until the text has doubled
   */
  constructor(states, what, before = null) {
    this.words = states.words;
    this.values = states.values;
    this.forget = states.forget;
    this.layer = states.layer;
    this.what = what;
    [this.least, this.most] = scale(this.values, what);
    const alike = before?.what === what && before.layer === this.layer;
    if (alike && goesOn(before.words, this.words, before.ordered)) {
      [this.order, this.ordered] = [before.order, before.ordered];
    } else {
      [this.order, this.ordered] = [channelOrder(this.values), this.words.length];
    }
  }

  /** How many columns are valid for these words. The network reads forward only, so later words do not matter. */
  covers(words) {
    let same = 0;
    while (same < words.length && words[same] === this.words[same]) same++;
    return same;
  }

  /** Words start..end as a picture, one pixel wide for each word. Channels that share a pixel row are averaged. */
  columns(start, end, rows) {
    const colour = colours(this.least, this.most);
    const H = this.order.length;
    const picture = new ImageData(end - start, rows);
    const pixels = new Uint32Array(picture.data.buffer);
    for (let row = 0; row < rows; row++) {
      const first = Math.floor((row * H) / rows);
      const last = Math.max(first + 1, Math.floor(((row + 1) * H) / rows));
      for (let t = start; t < end; t++) {
        let sum = 0;
        for (let at = first; at < last; at++) sum += this.values[t][this.order[at]];
        pixels[row * (end - start) + t - start] = colour(sum / (last - first));
      }
    }
    const canvas = new OffscreenCanvas(end - start, rows);
    canvas.getContext("2d").putImageData(picture, 0, 0);
    return canvas;
  }

  channelAt(fraction) {
    return this.order[Math.max(0, Math.min(this.order.length - 1, Math.floor(fraction * this.order.length)))];
  }
}

/** The scale's colours from least to most, drawn into a canvas. */
export function drawLegend(canvas, least, most) {
  const steps = 128;
  const colour = colours(least, most);
  canvas.width = steps;
  canvas.height = 1;
  const picture = new ImageData(steps, 1);
  new Uint32Array(picture.data.buffer).forEach((_, step, pixels) => {
    pixels[step] = colour(least + ((most - least) * step) / (steps - 1));
  });
  canvas.getContext("2d").putImageData(picture, 0, 0);
}

function goesOn(before, now, ordered) {
  const same = Math.min(before.length, now.length, ordered);
  return now.length < 2 * ordered + 4 && same > 0 && before.slice(0, same).every((word, at) => word === now[at]);
}

/** A limit around zero that contains all but the most extreme values, to one digit. */
function scale(values, what) {
  if (GATES.includes(what)) return [0, 1];
  const sizes = Float32Array.from(values.flat(), Math.abs).sort();
  const largest = sizes.at(-1);
  const usual = sizes[Math.floor((sizes.length - 1) * 0.995)];
  const reach = Number((largest <= 1.3 * usual ? largest : usual).toPrecision(1)) || 1;
  return [-reach, reach];
}
