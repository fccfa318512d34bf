/**
 * Tells where the pointer is over an element, but only when a hand has moved it.
 *
 * A browser also says so when the page scrolls under a pointer that rests, as it does while keys go from word to word.
 *
 * @param moved called with the event
 * @param left called when the pointer goes away
 */
export function watchPointer(element, moved, left) {
  let [x, y] = [null, null];
  const rests = (event) => {
    const same = event.screenX === x && event.screenY === y;
    [x, y] = [event.screenX, event.screenY];
    return same;
  };
  element.addEventListener("pointermove", (event) => rests(event) || moved(event));
  element.addEventListener("pointerleave", (event) => rests(event) || left());
  // Where it rests when a key is pressed is not known yet if it has never been over the element.
  document.addEventListener("pointermove", (event) => element.contains(event.target) || rests(event));
}
