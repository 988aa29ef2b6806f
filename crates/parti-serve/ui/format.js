// How values become text. Pure.

// The blank of braille (U+2800) is a symbol to Unicode.
const UNSEEN =
  /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\p{Cs}\p{Default_Ignorable_Code_Point}\u2800]/gu;

/** A name with everything visible: what nobody sees, or what turns text round, appears as its code. */
export function visible(name) {
  return String(name).replace(UNSEEN, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

const THOUSANDS = /\B(?=(?:\d{3})+$)/g;

/** A whole number with thousands marked; a dash if it is not known. */
export function count(number) {
  // By hand: the language's own formatter takes longer to make than the whole page.
  if (number === null || number === undefined) return "–";
  return String(Math.round(number)).replace(THOUSANDS, ",");
}

/** A number in three or four characters: 999, 1.2k, 34k, 5.6M. */
export function compact(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  if (number < 10 && number % 1 >= 0.05) return number.toFixed(1);
  let rest = Math.round(number);
  if (rest < 1000) return String(rest);
  for (const unit of ["k", "M", "G", "T", "P", "E"]) {
    rest /= 1000;
    if (rest < 9.95) return `${rest.toFixed(1)}${unit}`;
    if (rest < 999.5) return `${Math.round(rest)}${unit}`;
  }
  return `${Math.round(rest)}E`;
}

/** How long: 340 ms, 2.4 s, 3 min 05 s, 2 h 10 min, 3 d 4 h. */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  if (ms < 999.5) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${String(seconds % 60).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** How long ago, without milliseconds: they would only flicker. Clocks differ: never below 0. */
export function age(thenMs, nowMs) {
  if (!thenMs) return "–";
  const ms = Math.max(0, nowMs - thenMs);
  return ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : duration(ms);
}

/** The time of day, in the viewer's zone; with the date if it was not within the last day. */
export function clock(ms, nowMs) {
  if (!ms) return "–";
  const at = new Date(ms);
  const pad = (n) => String(n).padStart(2, "0");
  const time = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  if (Math.abs(nowMs - ms) < 86_400_000) return time;
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${time}`;
}

/** A number of things: 1 partition, 2 partitions. */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** `cold_start` as people write it. */
export function words(name) {
  return String(name ?? "").replaceAll("_", " ");
}

const DIGITS = /^[0-9]+$/;

/** The order of ids: numbers by their value first, then the others by their characters. */
export function compareIds(a, b) {
  const [left, right] = [DIGITS.test(a), DIGITS.test(b)];
  if (left && right) {
    // By length and then by digits, because ids may not fit into a number.
    const [x, y] = [a.replace(/^0+(?=.)/, ""), b.replace(/^0+(?=.)/, "")];
    if (x.length !== y.length) return x.length - y.length;
    if (x !== y) return x < y ? -1 : 1;
  } else if (left !== right) {
    return left ? -1 : 1;
  }
  return a < b ? -1 : a > b ? 1 : 0;
}

const TRAILING = /^(.*?)([0-9]+)$/s;

/** The order of workers: worker-2 before worker-10. */
export function compareNames(a, b) {
  const [x, y] = [TRAILING.exec(a), TRAILING.exec(b)];
  if (x && y && x[1] === y[1]) return compareIds(x[2], y[2]);
  return a < b ? -1 : a > b ? 1 : 0;
}
