// The page as a whole: the loaded models, the open panel, and whether the server responds.

import { Card } from "./card.js";
import { Generation } from "./generation.js";
import { Sentiment } from "./sentiment.js";
import { connection, load, NoAnswer } from "./server.js";
import { Translation } from "./translation.js";

const CELLS = { qrnn: "QRNN", lstm: "LSTM" };
// The fragment of the address. No element has such an id, or the browser would scroll to it.
const ADDRESSES = { read: "sentiment", translate: "translation", continue: "generation" };
const element = (id) => document.getElementById(id);

const kinds = { sentiment: Sentiment, translation: Translation, generation: Generation };
const tabs = [...document.querySelectorAll("[role=tab]")];
const panels = new Map();
for (const [id, Kind] of Object.entries(kinds)) {
  panels.set(id, { id, content: new Kind(element(id)), models: [], chosen: null, used: null });
}
const card = new Card(element("card"), element("card-dialog"));
let limits = {};
let open = null;

/** Reload the list of models; panels whose model is still served keep their content. */
async function loadModels() {
  const served = await load("/models");
  limits = served.limits;
  for (const panel of panels.values()) {
    panel.models = served.models.filter(({ task }) => task === panel.content.task);
    panel.chosen = panel.models.find(({ name }) => name === panel.chosen?.name) ?? panel.models[0] ?? null;
    const there = panel.chosen !== null;
    element(panel.id).querySelector(".present").hidden = !there;
    element(panel.id).querySelector(".absent").hidden = there;
    element(`tab-${panel.id}`).classList.toggle("without", !there);
  }
}

function show(id) {
  open = panels.get(id);
  for (const tab of tabs) {
    const here = tab.id === `tab-${id}`;
    tab.setAttribute("aria-selected", String(here));
    tab.tabIndex = here ? 0 : -1;
    element(tab.getAttribute("aria-controls")).hidden = !here;
  }
  document.title = `quasirnn: ${element(`tab-${id}`).textContent.toLowerCase()}`;
  showModel();
}

/** Show the model of the open panel in the header; a panel starts when it is first opened. */
function showModel() {
  const { models, chosen, content } = open;
  element("model").hidden = !chosen;
  if (!chosen) return;
  const several = models.length > 1;
  element("choice").hidden = !several;
  element("choice").replaceChildren(...models.map(({ name }) => new Option(name, name, false, name === chosen.name)));
  element("name").textContent = several ? "" : chosen.name;
  const layers = `${chosen.layers} layer${chosen.layers === 1 ? "" : "s"} of ${chosen.hidden_size}`;
  element("facts").textContent =
    `${CELLS[chosen.cell] ?? chosen.cell}, ${layers}, ` +
    `${chosen.parameters.toLocaleString("en")} parameters. Trained on ${chosen.trained_on}`;
  element("toy").hidden = !chosen.toy;
  element("toy").textContent = chosen.toy ? `${chosen.toy[0].toUpperCase()}${chosen.toy.slice(1)}.` : "";
  card.use(chosen);
  if (open.used !== JSON.stringify(chosen)) {
    open.used = JSON.stringify(chosen);
    content.use(chosen, limits);
  }
}

function firstPanel() {
  return addressed() ?? [...panels.values()].find(({ chosen }) => chosen)?.id ?? "sentiment";
}

function addressed() {
  return ADDRESSES[location.hash.slice(1)];
}

/** Only the names of runs are known here, not their folders. */
function startCommand() {
  const port = location.port && location.port !== "8000" ? ` --port ${location.port}` : "";
  return `quasirnn serve RUN ...${port}`;
}

function notice(...parts) {
  element("lost").replaceChildren(...parts);
  element("lost").hidden = false;
}

function choose(id) {
  if (id !== open?.id) history.pushState(null, "", `#${Object.keys(ADDRESSES).find((at) => ADDRESSES[at] === id)}`);
  show(id);
}

for (const [at, tab] of tabs.entries()) {
  tab.addEventListener("click", () => choose(tab.getAttribute("aria-controls")));
  tab.addEventListener("keydown", (event) => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1 + tabs.length, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = tabs[to % tabs.length];
    next.focus();
    choose(next.getAttribute("aria-controls"));
  });
}

element("choice").addEventListener("change", (event) => {
  open.chosen = open.models.find(({ name }) => name === event.target.value);
  showModel();
});

// Back, forward, and a typed address. The content of the panels stays.
window.addEventListener("popstate", () => open && show(firstPanel()));

connection.addEventListener("lost", () => {
  const command = document.createElement("code");
  command.textContent = startCommand();
  notice("The server does not respond. Start it again with ", command, ", and this page reconnects by itself.");
});

connection.addEventListener("back", start);

/** At the start, and when the server responds again. */
async function start() {
  try {
    await loadModels();
  } catch (error) {
    if (!(error instanceof NoAnswer)) notice(error.message);
    return;
  }
  element("lost").hidden = true;
  const known = open?.used;
  show(open?.id ?? firstPanel());
  if (known && known === open.used) open.content.resume();
}

start();
