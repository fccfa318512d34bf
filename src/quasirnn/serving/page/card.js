// The model card: a link next to the description of a model, and a dialog that shows the card.

import { markdown } from "./markdown.js";
import { load, NoAnswer } from "./server.js";

export class Card {
  constructor(link, dialog) {
    this.link = link;
    this.dialog = dialog;
    [this.heading, this.text] = [dialog.querySelector("h2"), dialog.querySelector(".markdown")];
    link.addEventListener("click", (event) => {
      // With a modifier key the file itself opens in its own tab.
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.open();
    });
    // A click outside the dialog is on its backdrop.
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
