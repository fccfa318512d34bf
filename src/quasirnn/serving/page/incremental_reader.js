/**
 * Reads a text that is being typed: only the new part is sent to the server, with the state that it returned before.
 *
 * Every complete piece leaves a bookmark: the text so far, its words, and the state after it. The next text continues
 * from the last bookmark that it still begins with; if an early part was changed, from the beginning.
 */
const MOST_BOOKMARKS = 64;
const START = { text: "", words: [], state: null };

export class IncrementalReader {
  /**
   * @param ask (text, state) -> promise of {words, state}
   * @param longest characters that may be asked about at once
   */
  constructor(ask, longest) {
    this.ask = ask;
    this.longest = longest;
    this.bookmarks = [START];
  }

  /** All words of the text. The word at its end, which may go on, is read too, but leaves no bookmark. */
  async read(text) {
    while (!text.startsWith(this.last.text)) this.bookmarks.pop();
    const complete = endOfWords(text);
    while (this.last.text.length < complete) {
      const piece = firstPiece(text.slice(this.last.text.length, complete), this.longest);
      await this.go(piece);
    }
    let { words, state } = this.last;
    for (let rest = text.slice(complete); rest; ) {
      const piece = firstPiece(rest, this.longest);
      const answer = await this.ask(piece, state);
      words = words.concat(answer.words);
      state = answer.state;
      rest = rest.slice(piece.length);
    }
    return words;
  }

  get last() {
    return this.bookmarks.at(-1);
  }

  /** Forget everything: the server no longer knows the state. */
  startOver() {
    this.bookmarks = [START];
  }

  async go(piece) {
    const from = this.last;
    const answer = await this.ask(piece, from.state);
    this.bookmarks.push({ text: from.text + piece, words: from.words.concat(answer.words), state: answer.state });
    if (this.bookmarks.length > MOST_BOOKMARKS) this.bookmarks.splice(1, 1);
  }
}

/** How many characters belong to complete words. A tag such as `<br />`, which has a space inside, is not cut. */
export function endOfWords(text) {
  const complete = /^[^]*\s/.exec(text)?.[0] ?? "";
  return complete.replace(/<[^<>]{0,9}$/, "").length;
}

/** The beginning of a text, of at most so many characters, cut after white space if there is any. */
export function firstPiece(text, longest) {
  if (text.length <= longest) return text;
  const piece = text.slice(0, longest).replace(/[\uD800-\uDBFF]$/, "");
  return piece.slice(0, endOfWords(piece) || piece.length);
}
