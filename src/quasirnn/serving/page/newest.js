/**
 * One call of `work` at a time, always with the newest input.
 *
 * What is handed in while a call is under way waits; if more comes, only the last of it is worked on. So answers come
 * in the order of their questions and none can overwrite a newer one.
 */
export function newest(work) {
  let waiting = null;
  let running = false;
  return async function submit(...input) {
    waiting = input;
    if (running) return;
    running = true;
    try {
      while (waiting) {
        const next = waiting;
        waiting = null;
        await work(...next);
      }
    } finally {
      running = false;
    }
  };
}
