// Where the cells of the partition map lie, and which rows of a long table are in view. Pure.
//
//   label │ ▢▢▢▢▢▢▢▢▢▢▢▢     a band per owner; or one band without label, in the order of ids
//         │ ▢▢▢▢▢             cells are numbered through all bands
//   label │ ▢▢▢▢▢▢▢▢

/** Sizes of a cell, largest first: the first with which the map is low enough is taken. */
const SIZES = [
  { w: 64, h: 34, gap: 3 },
  { w: 48, h: 28, gap: 3 },
  { w: 38, h: 24, gap: 2 },
  { w: 28, h: 20, gap: 2 },
  { w: 20, h: 16, gap: 2 },
  { w: 15, h: 14, gap: 2 },
  { w: 12, h: 12, gap: 1 },
  { w: 10, h: 10, gap: 1 },
];
const BAND_GAP = 5;
/** Lower bands would squeeze their label. */
const LABEL_HEIGHT = 16;

/**
 * Lays out bands of so many cells each.
 * Gives `{ size, bands: [{ first, count, y, rows, cols, height }], left, count, height }`.
 */
export function layOut(counts, { width, label, lowEnough }) {
  const labelled = label > 0;
  let laid = null;
  for (const size of SIZES) {
    laid = withSize(counts, size, width, labelled ? label : 0, labelled);
    if (laid.height <= lowEnough) break;
  }
  return laid;
}

function withSize(counts, size, width, left, labelled) {
  const cols = Math.max(1, Math.floor((width - left + size.gap) / (size.w + size.gap)));
  const bands = [];
  let [first, y] = [0, 0];
  for (const count of counts) {
    const rows = Math.max(1, Math.ceil(count / cols));
    const cells = rows * (size.h + size.gap) - size.gap;
    const height = labelled ? Math.max(cells, LABEL_HEIGHT) : cells;
    bands.push({ first, count, y, rows, cols, height });
    first += count;
    y += height + BAND_GAP;
  }
  return { size, bands, left, count: first, height: Math.max(0, y - BAND_GAP) };
}

/** The band that a cell belongs to. */
export function bandOf(layout, index) {
  let [low, high] = [0, layout.bands.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (layout.bands[middle].first <= index) low = middle;
    else high = middle - 1;
  }
  // Empty bands share their first cell with the band after them.
  while (low < layout.bands.length - 1 && layout.bands[low].count === 0) low += 1;
  return layout.bands[low];
}

/** Where a cell lies: `{ x, y }` of its upper left corner. */
export function placeOf(layout, index, band = bandOf(layout, index)) {
  const { size, left } = layout;
  const within = index - band.first;
  return {
    x: left + (within % band.cols) * (size.w + size.gap),
    y: band.y + Math.floor(within / band.cols) * (size.h + size.gap),
  };
}

/** The cell at a point, gaps belonging to the cell before them; -1: none. */
export function cellAt(layout, x, y) {
  const { size, left } = layout;
  const col = Math.floor((x - left) / (size.w + size.gap));
  if (x < left) return -1;
  for (const band of layout.bands) {
    if (y < band.y || y >= band.y + band.height + BAND_GAP) continue;
    const row = Math.floor((y - band.y) / (size.h + size.gap));
    const within = row * band.cols + col;
    return col < band.cols && within < band.count ? band.first + within : -1;
  }
  return -1;
}

/** The cell that a key leads to from another one; `null` if the key is not about moving. */
export function step(layout, index, key) {
  const last = layout.count - 1;
  if (last < 0) return null;
  const band = bandOf(layout, index);
  switch (key) {
    case "ArrowLeft":
      return Math.max(0, index - 1);
    case "ArrowRight":
      return Math.min(last, index + 1);
    case "Home":
      return band.first;
    case "End":
      return band.first + band.count - 1;
    case "PageUp":
    case "PageDown":
      return besideBand(layout, band, key === "PageUp" ? -1 : 1) ?? index;
    case "ArrowUp":
    case "ArrowDown":
      return vertical(layout, band, index, key === "ArrowUp" ? -1 : 1);
    default:
      return null;
  }
}

function besideBand(layout, band, direction) {
  let at = layout.bands.indexOf(band) + direction;
  while (layout.bands[at]?.count === 0) at += direction;
  return layout.bands[at]?.first ?? null;
}

function vertical(layout, band, index, direction) {
  const within = index - band.first;
  const [row, col] = [Math.floor(within / band.cols), within % band.cols];
  const next = row + direction;
  if (next >= 0 && next < band.rows) {
    return band.first + Math.min(next * band.cols + col, band.count - 1);
  }
  const start = besideBand(layout, band, direction);
  if (start === null) return index;
  const other = bandOf(layout, start);
  const target = direction > 0 ? 0 : other.rows - 1;
  return other.first + Math.min(target * other.cols + col, other.count - 1);
}

/** The bands that are in view: `[from, to)`. */
export function bandsIn(layout, top, bottom) {
  let from = 0;
  while (from < layout.bands.length && layout.bands[from].y + layout.bands[from].height < top) {
    from += 1;
  }
  let to = from;
  while (to < layout.bands.length && layout.bands[to].y <= bottom) to += 1;
  return [from, to];
}

/** Which rows of a table are in view: `[from, to)`, with a few more on either side. */
export function rowsIn(scrollTop, height, rowHeight, count, spare = 6) {
  const from = Math.max(0, Math.floor(scrollTop / rowHeight) - spare);
  const to = Math.min(count, Math.ceil((scrollTop + height) / rowHeight) + spare);
  return [Math.min(from, to), to];
}

/** How full a cell is for a lag: 0 for none, 1 from `full` on, by powers between. */
export function level(lag, full) {
  if (!lag || lag <= 0) return 0;
  return Math.min(1, Math.max(0.12, Math.log1p(lag) / Math.log1p(full)));
}

/** A round number at or above a lag, for the legend: 1, 2 or 5 times a power of ten. */
export function roundUp(value) {
  const least = Math.max(100, value);
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= least);
}
