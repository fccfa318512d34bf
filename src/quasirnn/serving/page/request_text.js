// Requests and responses as text: readable JSON, and the shell command that sends a request.

const LONGEST = 50_000; // characters of an answer that are shown

/** JSON with one entry a line; a list of plain values on one line. */
export function pretty(value) {
  const text = lines(value, "");
  const more = text.length - LONGEST;
  return more > 0 ? `${text.slice(0, LONGEST)}\n… ${more.toLocaleString("en")} more characters` : text;
}

function lines(value, indent) {
  const inner = `${indent}  `;
  if (Array.isArray(value)) {
    const plain = value.every((each) => each === null || typeof each !== "object");
    if (plain) return `[${value.map((each) => JSON.stringify(each)).join(", ")}]`;
    return `[\n${value.map((each) => inner + lines(each, inner)).join(",\n")}\n${indent}]`;
  }
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value).map(([key, each]) => `${inner}${JSON.stringify(key)}: ${lines(each, inner)}`);
    return entries.length ? `{\n${entries.join(",\n")}\n${indent}}` : "{}";
  }
  return JSON.stringify(value);
}

/** The shell command for the request that the button sends. */
export function shellLine({ url, method, kind, body, streams }) {
  const words = ["curl", streams ? "-sN" : "-s", quoted(url)];
  if (body !== null) words.push("-H", quoted(`Content-Type: ${kind}`), "-d", quoted(compact(body)));
  else if (method !== "GET") words.push("-X", method);
  return words.join(" ");
}

function compact(body) {
  try {
    return JSON.stringify(JSON.parse(body));
  } catch {
    return body;
  }
}

/** A word of a shell: as it is if that is safe, else in single quotes. */
function quoted(word) {
  return /^[\w./:%-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
