// Where the cells of the partition map lie, and which rows of a long table are in view. Pure.
//
//   label │ ▢▢▢▢▢▢▢▢▢▢▢▢     a band per owner; or one band without label, in the order of ids
//         │ ▢▢▢▢▢             cells are numbered through all bands
//   label │ ▢▢▢▢▢▢▢▢

/** Sizes of a cell, largest first: the first with which the map is low enough is taken. */
const SIZES = [
  { w: 64, h: 34, gap: 3, between: 6 },
  { w: 48, h: 28, gap: 3, between: 6 },
  { w: 38, h: 24, gap: 2, between: 6 },
  { w: 28, h: 20, gap: 2, between: 5 },
  { w: 20, h: 16, gap: 2, between: 5 },
  { w: 15, h: 14, gap: 2, between: 4 },
  { w: 12, h: 12, gap: 1, between: 4 },
  { w: 9, h: 9, gap: 1, between: 3 },
  { w: 6, h: 7, gap: 1, between: 3 },
];
/** Lower bands would squeeze their label. */
const LABEL_HEIGHT = 16;
/** Bands stand in two columns where each gets so much width. */
const COLUMN_WIDTH = 360;
const COLUMN_GAP = 20;

/**
 * Lays out bands of so many cells each, with a label of a width before each (0: none).
 * Gives `{ size, bands: [{ first, count, x, y, rows, cols, height }], label, count, height }`.
 */
export function layOut(counts, { width, label, lowEnough }) {
  const most = label > 0 && counts.length > 1 && width >= 2 * COLUMN_WIDTH + COLUMN_GAP ? 2 : 1;
  let laid = null;
  for (const size of SIZES) {
    for (let columns = 1; columns <= most; columns += 1) {
      laid = withSize(counts, size, width, label, columns);
      if (laid.height <= lowEnough) return laid;
    }
  }
  return laid;
}

function withSize(counts, size, width, label, columns) {
  const each = (width - COLUMN_GAP * (columns - 1)) / columns;
  const cols = Math.max(1, Math.floor((each - label + size.gap) / (size.w + size.gap)));
  const bands = [];
  let first = 0;
  for (const count of counts) {
    const rows = Math.max(1, Math.ceil(count / cols));
    const cells = rows * (size.h + size.gap) - size.gap;
    const height = label > 0 ? Math.max(cells, LABEL_HEIGHT) : cells;
    bands.push({ first, count, x: 0, y: 0, rows, cols, height });
    first += count;
  }
  const all = bands.reduce((sum, { height }) => sum + height + size.between, 0);
  let [column, y, height] = [0, 0, 0];
  for (const band of bands) {
    // The first column takes half, and rather more than less.
    if (column + 1 < columns && y >= all / columns) [column, y] = [column + 1, 0];
    Object.assign(band, { x: Math.round(column * (each + COLUMN_GAP)), y });
    height = Math.max(height, y + band.height);
    y += band.height + size.between;
  }
  return { size, bands, label, count: first, height };
}

/** The band that a cell belongs to. */
export function bandOf(layout, index) {
  let [low, high] = [0, layout.bands.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (layout.bands[middle].first <= index) low = middle;
    else high = middle - 1;
  }
  return layout.bands[low];
}

/** Where a cell lies: `{ x, y }` of its upper left corner. */
export function placeOf(layout, index, band = bandOf(layout, index)) {
  const { size, label } = layout;
  const within = index - band.first;
  return {
    x: band.x + label + (within % band.cols) * (size.w + size.gap),
    y: band.y + Math.floor(within / band.cols) * (size.h + size.gap),
  };
}

/** The cell at a point, gaps belonging to the cell before them; -1: none. */
export function cellAt(layout, x, y) {
  const { size, label } = layout;
  for (const band of layout.bands) {
    if (y < band.y || y >= band.y + band.height) continue;
    const col = Math.floor((x - band.x - label) / (size.w + size.gap));
    if (col < 0 || col >= band.cols) continue;
    const row = Math.floor((y - band.y) / (size.h + size.gap));
    const within = row * band.cols + col;
    return within < band.count ? band.first + within : -1;
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
