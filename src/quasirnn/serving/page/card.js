// The model card: a link beside the facts of a model, and a dialog that shows what it leads to.

import { markdown } from "./markdown.js";
import { load, NoAnswer } from "./server.js";

export class Card {
  constructor(link, dialog) {
    this.link = link;
    this.dialog = dialog;
    [this.heading, this.text] = [dialog.querySelector("h2"), dialog.querySelector(".markdown")];
    link.addEventListener("click", (event) => {
      // With a key held, the file itself is wanted, in a tab of its own.
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.open();
    });
    // Beside the dialog is its backdrop.
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  }

  use(model) {
    this.model = model;
    this.link.hidden = !model.card;
    this.link.href = `/card/${encodeURIComponent(model.name)}`;
  }

  async open() {
    const { name } = this.model;
    try {
      const text = await load(this.link.href, "text");
      this.text.replaceChildren(markdown(text, 2));
    } catch (error) {
      if (error instanceof NoAnswer) return;
      this.text.replaceChildren(error.message);
    }
    this.heading.textContent = `Model card of ${name}`;
    this.dialog.showModal();
    this.dialog.scrollTop = 0;
  }
}
