// The text field of a panel: its limit with a counter, and the examples below it.

export class Entry {
  /** @param take called with the text that was sent, or of an example that was chosen */
  constructor(panel, take) {
    this.field = panel.querySelector(".entry textarea");
    this.counter = panel.querySelector(".counter");
    this.examples = panel.querySelector(".examples");
    this.take = take;
    this.field.addEventListener("input", () => this.count());
  }

  /** Enter sends, as in a field of one line; Shift and Enter still breaks the line. */
  sendWith(form) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.take(this.text);
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    });
  }

  use(model, longest) {
    this.field.maxLength = longest;
    this.examples.replaceChildren(
      ...model.examples.map((text) => {
        const chip = document.createElement("button");
        chip.type = "button";
        chip.textContent = text || "from nothing";
        chip.title = text;
        chip.addEventListener("click", () => {
          this.text = text;
          this.take(text);
        });
        return chip;
      }),
    );
    this.count();
  }

  get text() {
    return this.field.value;
  }

  set text(text) {
    this.field.value = text;
    this.count();
  }

  count() {
    const [length, longest] = [this.field.value.length, this.field.maxLength];
    this.counter.textContent = `${length.toLocaleString("en")} / ${longest.toLocaleString("en")}`;
    this.counter.classList.toggle("full", length >= longest);
  }
}
