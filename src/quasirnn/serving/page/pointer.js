/**
 * Reports where the pointer is over an element, but only when the user has moved it.
 *
 * Browsers also fire events when the page scrolls under a resting pointer, as it does with the arrow keys.
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
  // Until the pointer has been over the element, its resting place is not known when a key is pressed.
  document.addEventListener("pointermove", (event) => element.contains(event.target) || rests(event));
}
