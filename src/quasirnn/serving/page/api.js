// The documentation of the API from /openapi.json: the request and responses of every path, and a way to try it.

import { element } from "./markdown.js";
import { pretty, shellLine } from "./request_text.js";
import { fieldsOf, resolve } from "./schema_text.js";
import { load } from "./server.js";

const METHODS = ["get", "post", "put", "delete", "patch"];
const LAST = "server";

async function start() {
  try {
    const [api, { models }] = await Promise.all([load("/openapi.json"), load("/models")]);
    const operations = operationsOf(api);
    // Endpoints of tasks come first.
    const tags = [...new Set(operations.map(({ tag }) => tag))].sort((a, b) => (a === LAST) - (b === LAST));
    for (const tag of tags) {
      const own = operations.filter((each) => each.tag === tag);
      const there = models.filter(({ task }) => task === tag).map(({ name }) => name);
      document.getElementById("contents").append(contents(tag, own));
      document.getElementById("operations").append(group(tag, there, own));
    }
    // The element that the address names did not exist when the browser looked for it.
    document.getElementById(location.hash.slice(1))?.scrollIntoView();
  } catch (error) {
    const notice = document.getElementById("lost");
    notice.textContent = error.message;
    notice.hidden = false;
  }
}

function operationsOf(api) {
  return Object.entries(api.paths).flatMap(([path, methods]) =>
    METHODS.filter((method) => method in methods).map((method) => {
      const about = methods[method];
      const [[kind, body] = []] = Object.entries(about.requestBody?.content ?? {});
      return {
        api,
        path,
        method: method.toUpperCase(),
        tag: about.tags?.[0] ?? LAST,
        id: path.slice(1).replaceAll(/[^\w-]+/g, "-").replace(/-$/, ""),
        summary: about.summary ?? "",
        parameters: about.parameters ?? [],
        kind,
        body: body && resolve(api, body.schema),
        example: body && (body.example ?? exampleOf(api, resolve(api, body.schema))),
        responses: about.responses,
      };
    }),
  );
}

/** A body for a schema without an example: the required fields only, each as short as allowed. */
function exampleOf(api, schema) {
  const value = (raw) => {
    const field = resolve(api, raw);
    const first = field.examples?.[0] ?? field.default ?? field.enum?.[0];
    if (first !== undefined) return first;
    if (field.type === "array") return [value(field.items)];
    const least = field.minimum ?? 1;
    return { string: "a text", integer: least, number: least, boolean: false }[field.type] ?? null;
  };
  return Object.fromEntries((schema.required ?? []).map((name) => [name, value(schema.properties[name])]));
}

function contents(tag, operations) {
  const items = operations.map(({ id, path }) => {
    const link = element("a", element("code", path));
    link.href = `#${id}`;
    return element("li", link);
  });
  return element("div", element("span", tag), element("ul", ...items));
}

function group(tag, models, operations) {
  const made = element("section", element("h2", tag));
  if (tag !== LAST) {
    const without = "No model of this task is loaded: these return 404.";
    made.append(classed("p", "remark", models.length ? `Models: ${models.join(", ")}.` : without));
  }
  made.append(...operations.map(operation));
  return made;
}

function operation(about) {
  const made = classed("article", "operation");
  made.id = about.id;
  made.append(
    element("h3", classed("span", "method", about.method), " ", element("code", about.path)),
    element("p", about.summary),
  );
  const parameters = about.parameters.map((each) => ({ ...each, type: "text", limits: [] }));
  const fields = [...parameters, ...fieldsOf(about.api, about.body ?? {})];
  if (fields.length) made.append(table(["field", "type", "what it is"], fields.map(fieldRow)));
  made.append(trial(about), answers(about));
  return made;
}

function fieldRow({ name, type, required, limits, description }) {
  const names = element("span", element("code", name));
  if (required) names.append(" ", element("small", "required"));
  const sentence = limits.length ? `${limits[0][0].toUpperCase()}${limits.join(", ").slice(1)}.` : "";
  return [names, type, [description, sentence].filter(Boolean).join(" ")];
}

/** The fields of each response, and the errors. */
function answers({ api, responses }) {
  const made = element("details", element("summary", "Responses"));
  const errors = [];
  for (const [status, { description, content = {} }] of Object.entries(responses)) {
    const [[kind, { schema = {} } = {}] = []] = Object.entries(content);
    if (Number(status) >= 400) {
      errors.push([element("code", status), description]);
      continue;
    }
    const words = kind === "application/json" ? kind : `${kind}. ${description}`;
    made.append(element("p", element("code", status), " ", words));
    const parts = schema["x-events"] ?? { "": schema };
    for (const [event, part] of Object.entries(parts)) {
      const rows = fieldsOf(api, resolve(api, part), "answer").map(fieldRow);
      if (event) made.append(element("p", "Event ", element("code", event)));
      if (rows.length) made.append(table(["field", "type", "what it is"], rows));
    }
  }
  if (errors.length) made.append(table(["status", "when"], errors));
  return made;
}

function trial(about) {
  const form = classed("form", "trial");
  const fields = new Map();
  for (const { name, example } of about.parameters) {
    const field = element("input");
    Object.assign(field, { name, value: example ?? "", autocomplete: "off" });
    fields.set(name, field);
    form.append(element("label", `${name} `, field));
  }
  let body = null;
  if (about.body) {
    body = element("textarea");
    Object.assign(body, { name: "body", spellcheck: false, value: pretty(about.example) });
    body.rows = body.value.split("\n").length;
    form.append(element("label", "Body", body));
  }
  const button = classed("button", "act", "Send");
  const line = element("code");
  const status = classed("p", "status");
  status.setAttribute("role", "status");
  const output = classed("pre", "answer");
  // It scrolls, so it must be reachable by keyboard.
  output.tabIndex = 0;
  output.hidden = true;
  output.setAttribute("role", "region");
  output.setAttribute("aria-label", `Response of ${about.path}`);
  form.append(classed("pre", "shell", line), button, status, output);

  const path = () => about.path.replaceAll(/\{(\w+)\}/g, (_, name) => encodeURIComponent(fields.get(name).value));
  const request = () => ({
    url: location.origin + path(),
    method: about.method,
    kind: about.kind,
    body: body?.value ?? null,
    streams: "text/event-stream" in (about.responses[200]?.content ?? {}),
  });
  const show = () => (line.textContent = shellLine(request()));
  form.addEventListener("input", show);
  show();
  let sending = null;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (sending) return sending.abort();
    sending = new AbortController();
    button.textContent = "Stop";
    await send(request(), status, output, sending.signal);
    button.textContent = "Send";
    sending = null;
  });
  return form;
}

/** Send a request and show the response; a stream as it arrives. */
async function send({ url, method, kind, body }, status, output, signal) {
  const began = performance.now();
  const took = () => `${((performance.now() - began) / 1000).toFixed(2)} s`;
  status.textContent = "Sent.";
  output.hidden = true;
  output.textContent = "";
  try {
    const headers = kind ? { "Content-Type": kind } : {};
    const response = await fetch(url, { method, headers, body, signal });
    const type = response.headers.get("Content-Type") ?? "";
    const result = `${response.status} ${response.statusText}`.trim();
    status.textContent = `${result}, ${type}`;
    status.classList.toggle("wrong", !response.ok);
    output.hidden = false;
    if (type.startsWith("application/json")) output.textContent = pretty(await response.json());
    else {
      const pieces = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { value, done } = await pieces.read();
        if (done) break;
        output.append(value);
      }
    }
    status.textContent += `, ${took()}`;
  } catch {
    status.classList.add("wrong");
    status.textContent = signal.aborted ? `Stopped after ${took()}.` : "The server does not respond.";
  }
}

function table(heads, rows) {
  const head = element("tr", ...heads.map((each) => element("th", each)));
  const body = rows.map((row) => element("tr", ...row.map((each) => element("td", each))));
  return classed("div", "sideways", element("table", element("thead", head), element("tbody", ...body)));
}

function classed(name, className, ...children) {
  const made = element(name, ...children);
  made.className = className;
  return made;
}

start();
