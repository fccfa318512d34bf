// Requests to the server, their errors, and streams of text.

const POLL = 1000;
const MOST_RETRIES = 10;

/** An error response. `message` is the sentence of the server. */
export class ApiError extends Error {
  constructor(status, sentence, field) {
    super(sentence);
    this.status = status;
    this.field = field;
  }
}

/** No response, or an incomplete one. */
export class NoAnswer extends Error {}

/** Dispatches "lost" once when the server stops responding, and "back" when it is ready again. */
export const connection = new EventTarget();
let lost = false;

/** Get JSON, or with `as` "text" a text. */
export function load(path, as = "json") {
  return request(path, {}).then((response) => whole(response[as]()));
}

/** Post JSON and get JSON. `busy(seconds)` is called before each retry while the queue is full. */
export async function post(path, body, { signal, busy } = {}) {
  const response = await postRaw(path, body, { signal, busy });
  return whole(response.json(), signal);
}

/** Post JSON and call `each(name, data)` for each event of the response. Returns when the stream has ended. */
export async function stream(path, body, each, { signal, busy } = {}) {
  const response = await postRaw(path, body, { signal, busy });
  const pieces = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let ended = false;
  for (;;) {
    const { value, done } = await whole(pieces.read(), signal);
    if (done) break;
    text += value;
    const events = text.replaceAll("\r\n", "\n").split("\n\n");
    text = events.pop();
    for (const event of events) {
      const { name, data } = parseEvent(event);
      if (name === "error") throw new ApiError(data.status, data.error);
      if (data !== null) each(name, data);
      ended ||= name === "end";
    }
  }
  if (!ended) throw noAnswer();
}

function parseEvent(lines) {
  let name = "message";
  const data = [];
  for (const line of lines.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    if (line.startsWith("data:")) data.push(line.slice(5));
  }
  return { name, data: data.length ? JSON.parse(data.join("\n")) : null };
}

async function postRaw(path, body, { signal, busy = () => {} }) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await request(path, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(body),
        signal,
      });
    } catch (error) {
      if (!(error instanceof ApiError) || !error.retryAfter || attempt === MOST_RETRIES) throw error;
      busy(error.retryAfter);
      await pause(error.retryAfter * 1000, signal);
    }
  }
}

async function request(path, options) {
  const response = await whole(fetch(path, options), options.signal);
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  const sentence = answer.error ?? `The server returned ${response.status}.`;
  const refused = new ApiError(response.status, sentence, answer.field);
  if (response.status === 503) refused.retryAfter = Number(response.headers.get("Retry-After")) || 1;
  throw refused;
}

/** Waits for a part of a response. Any failure but our own abort means that the connection is lost. */
async function whole(part, signal) {
  try {
    return await part;
  } catch (error) {
    if (signal?.aborted) throw error;
    throw noAnswer();
  }
}

function noAnswer() {
  if (!lost) {
    lost = true;
    connection.dispatchEvent(new Event("lost"));
    waitUntilReady();
  }
  return new NoAnswer("The server does not respond.");
}

async function waitUntilReady() {
  for (;;) {
    await pause(POLL);
    const response = await fetch("/health/ready").catch(() => null);
    if (response?.ok) break;
  }
  lost = false;
  connection.dispatchEvent(new Event("back"));
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}
