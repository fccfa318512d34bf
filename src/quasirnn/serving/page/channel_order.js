/**
 * An order of channels in which neighbours differ little over time; what is active at first comes first.
 *
 * Channels are put into a row one by one, those far from the mean first, each where it lengthens the way along the row
 * least; the distance of two channels is that of their series in time.
 *
 * @param values T rows of H numbers
 * @returns H channel numbers
 */
export function channelOrder(values) {
  const T = values.length;
  const H = values[0].length;
  const series = Array.from({ length: H }, (_, channel) => Float32Array.from(values, (row) => row[channel]));
  const mean = Float32Array.from(values, (row) => row.reduce((sum, value) => sum + value, 0) / H);
  const distance = (a, b) => {
    let sum = 0;
    for (let t = 0; t < T; t++) sum += (a[t] - b[t]) ** 2;
    return Math.sqrt(sum);
  };
  const fromMean = series.map((each) => distance(each, mean));
  const far = series.map((_, channel) => channel).sort((a, b) => fromMean[b] - fromMean[a] || a - b);

  const order = [far[0]];
  const gaps = []; // gaps[i] lies between order[i] and order[i + 1]
  for (const channel of far.slice(1)) {
    const away = order.map((other) => distance(series[channel], series[other]));
    let best = 0;
    let least = away[0];
    for (let at = 1; at <= order.length; at++) {
      const detour = at === order.length ? away[at - 1] : away[at - 1] + away[at] - gaps[at - 1];
      if (detour < least) [best, least] = [at, detour];
    }
    if (best === 0) gaps.unshift(away[0]);
    else if (best === order.length) gaps.push(away[best - 1]);
    else gaps.splice(best - 1, 1, away[best - 1], away[best]);
    order.splice(best, 0, channel);
  }

  const activity = (channels) => channels.reduce((sum, channel) => sum + series[channel].reduce((a, b) => a + b, 0), 0);
  const half = Math.floor(H / 2);
  return activity(order.slice(0, half)) < activity(order.slice(H - half)) ? order.reverse() : order;
}
