// Colours for numbers. Zero is the colour of the paper, in the light and in the dark, so that large values stand out.

const DIVERGING = {
  light: ["#0d3b66", "#2f76b0", "#9cc4de", "#f7f5f0", "#efb394", "#cb5a3c", "#7d1420"],
  dark: ["#a8d8ff", "#4f9bd6", "#24527a", "#191c20", "#7a3a26", "#d9764a", "#ffc49e"],
};
const SEQUENTIAL = {
  light: ["#f7f5f0", "#b5d0e4", "#4f8fc2", "#1b5e9b", "#0a2f55"],
  dark: ["#191c20", "#22476b", "#3f7fb5", "#86bdf2", "#e6f3ff"],
};
const STEPS = 256;
const tables = new Map();

const darkness = window.matchMedia("(prefers-color-scheme: dark)");

/** Call back when the colours of the page change between light and dark. */
export function onSchemeChange(callback) {
  darkness.addEventListener("change", callback);
}

/** A function from a number in `[least, most]` to its colour as a 32-bit pixel; NaN and what is outside is clipped. */
export function colours(least, most) {
  const table = tableOf(least < 0 ? DIVERGING : SEQUENTIAL);
  const scale = (STEPS - 1) / (most - least);
  return (value) => table[Math.max(0, Math.min(STEPS - 1, Math.round((value - least) * scale) || 0))];
}

/** The pixel as a CSS colour. */
export function asStyle(pixel) {
  return `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;
}

function tableOf(palette) {
  const stops = darkness.matches ? palette.dark : palette.light;
  if (!tables.has(stops)) tables.set(stops, interpolate(stops));
  return tables.get(stops);
}

/** Between the stops, straight lines in red, green and blue. */
function interpolate(stops) {
  const parts = stops.map((stop) => [1, 3, 5].map((at) => parseInt(stop.slice(at, at + 2), 16)));
  return Uint32Array.from({ length: STEPS }, (_, step) => {
    const place = (step / (STEPS - 1)) * (parts.length - 1);
    const at = Math.min(Math.floor(place), parts.length - 2);
    const [r, g, b] = parts[at].map((part, i) => Math.round(part + (place - at) * (parts[at + 1][i] - part)));
    return (255 << 24) | (b << 16) | (g << 8) | r;
  });
}
