// What a model does not know of a text, said in a sentence.

const MOST = 8;

/**
 * @param place the element for the sentence, hidden where there is nothing to say
 * @param tokens words or characters that are not in the vocabulary
 */
export function showUnknown(place, tokens) {
  const named = [...new Set(tokens)];
  const rest = named.length > MOST ? ` and ${(named.length - MOST).toLocaleString("en")} more` : "";
  const list = named.slice(0, MOST).map((token) => `\u2068“${token}”\u2069`).join(", ");
  place.textContent = `Not in the vocabulary, read as unknown: ${list}${rest}.`;
  place.hidden = !named.length;
}
