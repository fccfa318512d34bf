// Errors, in one place of each panel.

import { NoAnswer } from "./server.js";

export class Messages {
  /** @param panel the element with a `.message` and the fields that an error may name */
  constructor(panel) {
    this.panel = panel;
    this.place = panel.querySelector(".message");
  }

  clear() {
    this.say("");
    for (const field of this.panel.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  }

  say(sentence) {
    this.place.textContent = sentence;
  }

  busy = (seconds) => this.say(`The server is busy. Retrying in ${seconds} s.`);

  /** The server's own sentence, and a mark at its field. A lost server is reported at the top of the page. */
  show(error) {
    if (error instanceof NoAnswer) return this.clear();
    // A sentence about a field begins with its name and stays as it is; any other gets a capital letter.
    this.say(error.field ? error.message : error.message[0].toUpperCase() + error.message.slice(1));
    if (!error.field) return;
    this.panel.querySelector(`[name="${CSS.escape(error.field)}"]`)?.setAttribute("aria-invalid", "true");
  }
}
