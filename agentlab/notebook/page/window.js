// A windowed list. Only what is near the visible part is in the document, so that 5,000 steps stay smooth.

const OVERSCAN = 500; // pixels above and below the visible part that are in the document too
const AFTER_TOUCH = 700; // milliseconds for which a list moves on after the wheel, a finger or a key
const FIRST_GUESS = 160; // pixels of an item before any was measured

/**
 * Return a windowed list inside `scroller`.
 *
 * `source` has `length()`, `build(index)` which returns an element, and `weight(index)`: a number that grows with the height, such as
 * the length of the text. `rough(index)` is true for an element that keeps the place of one that is not there yet. Heights are guessed from weights until an item is in the document and is measured. Whatever changes, the first
 * visible item keeps its place on the screen; after `refresh(…, { toEnd: true })` the end does.
 */
function makeWindow(scroller, source, onDrawn = () => {}) {
  const before = make("div", { "aria-hidden": "true" });
  const after = make("div", { "aria-hidden": "true" });
  const shown = new Map(); // index to element, those in the document
  let heights = [];
  let measured = [];
  let starts = [0];
  let ratio = { height: 0, weight: 0 };
  let whole = false; // printing: everything is in the document
  let ended = false; // the end is in view
  let own = -1; // the position that this code has set: no person scrolled there
  let touched = -Infinity; // when a person moved the list; the browser moves it too, where the view or an item grows
  let held = false; // the scroll bar

  const total = () => starts.at(-1);
  const indexAt = (y) => {
    let low = 0;
    let high = heights.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return Math.max(0, low);
  };
  const anchor = () => {
    const index = indexAt(scroller.scrollTop);
    return { index, offset: starts[index] - scroller.scrollTop };
  };
  const atEnd = () => scroller.scrollTop + scroller.clientHeight >= total() - 4;

  function guess(index) {
    const each = ratio.weight > 0 ? ratio.height / ratio.weight : 0;
    return each > 0 ? Math.max(40, each * source.weight(index)) : FIRST_GUESS;
  }

  function sum(from = 0) {
    starts.length = heights.length + 1;
    starts[0] = 0;
    for (let index = from; index < heights.length; index++) starts[index + 1] = starts[index] + heights[index];
  }

  /** Guesses use what has been measured so far; a measured height stays. */
  function guessAll() {
    for (let index = 0; index < heights.length; index++) if (!measured[index]) heights[index] = guess(index);
    sum();
  }

  /** Read the heights in the document; true if one is not what was thought. */
  function measure() {
    let changed = heights.length;
    for (const [index, node] of shown) {
      const height = node.getBoundingClientRect().height;
      const rough = source.rough?.(index);
      if (!measured[index] && !rough) {
        ratio.height += height;
        ratio.weight += source.weight(index);
      }
      measured[index] = !rough;
      if (Math.abs(height - heights[index]) < 0.01) continue;
      heights[index] = height;
      changed = Math.min(changed, index);
    }
    if (changed < heights.length) sum(changed);
    return changed < heights.length;
  }

  function top(hold) {
    const wanted = hold.end ? total() : starts[hold.index] - hold.offset;
    return Math.max(0, Math.min(wanted, total() - scroller.clientHeight));
  }

  function range(hold) {
    if (whole) return [0, heights.length];
    const y = top(hold);
    return [indexAt(y - OVERSCAN), Math.min(heights.length, indexAt(y + scroller.clientHeight + OVERSCAN) + 1)];
  }

  function take(index, node) {
    if (node.contains(focused())) scroller.focus({ preventScroll: true });
    sizes.unobserve(node);
    node.remove();
    shown.delete(index);
  }

  function place(from, to) {
    for (const [index, node] of shown) if (index < from || index >= to) take(index, node);
    let next = after;
    for (let index = to - 1; index >= from; index--) {
      let node = shown.get(index);
      if (!node) {
        node = source.build(index);
        shown.set(index, node);
        next.before(node);
        sizes.observe(node);
      }
      next = node;
    }
    before.style.height = `${starts[from] || 0}px`;
    after.style.height = `${total() - (starts[to] ?? total())}px`;
  }

  function update(hold = anchor()) {
    if (scroller.clientHeight === 0 && !whole) return; // out of sight: there is nothing to measure
    let from = 0;
    let to = 0;
    for (let round = 0; round < 5; round++) {
      const [first, end] = range(hold);
      if (round && first === from && end === to) break;
      [from, to] = [first, end];
      place(from, to);
      if (!measure()) break;
    }
    place(from, to);
    const y = top(hold);
    if (!whole && Math.abs(scroller.scrollTop - y) > 0.5) {
      scroller.scrollTop = y;
      own = scroller.scrollTop;
    }
    ended = atEnd();
    onDrawn();
  }

  function drop(from) {
    for (const [index, node] of shown) if (index >= from) take(index, node);
  }

  // A fold that opens, a picture that arrives, or another width: the heights are read again before anything is painted.
  const sizes = new ResizeObserver(() => {
    const hold = anchor();
    if (measure()) update(hold);
  });
  new ResizeObserver(() => update(ended && scroller.scrollTop > 0 ? { end: true } : undefined)).observe(scroller);
  scroller.replaceChildren(before, after);
  const touch = () => (touched = performance.now());
  for (const name of ["wheel", "touchmove", "keydown"]) scroller.addEventListener(name, touch, { passive: true });
  scroller.addEventListener("pointerdown", (event) => (held = event.target === scroller));
  for (const name of ["pointerup", "pointermove"]) scroller.addEventListener(name, (event) => (held &&= event.buttons > 0));

  return {
    update,
    atEnd,
    shown,
    /** All is new, such as another run. */
    reset(hold = { index: 0, offset: 0 }) {
      drop(0);
      heights = new Array(source.length()).fill(FIRST_GUESS);
      measured = new Array(source.length()).fill(false);
      ratio = { height: 0, weight: 0 };
      sum();
      update(hold);
      guessAll(); // the first items have been measured now: what follows is guessed better
      update(hold);
    },
    /** Items from this index on have changed, or are new. */
    refresh(from, { toEnd = false } = {}) {
      const hold = toEnd ? { end: true } : anchor();
      drop(from);
      const length = source.length();
      for (let index = Math.min(from, heights.length); index < length; index++) {
        heights[index] ??= guess(index);
        measured[index] = false;
      }
      heights.length = measured.length = length;
      sum();
      update(hold);
    },
    /** These items have changed: the others, and what is first in view, stay. */
    redo(indices) {
      const hold = anchor();
      for (const index of indices) {
        if (shown.has(index)) take(index, shown.get(index));
        measured[index] = false;
        heights[index] = guess(index);
      }
      sum();
      update(hold);
    },
    /** An item in the document has changed its height by itself. */
    settle({ toEnd = false } = {}) {
      const hold = toEnd ? { end: true } : anchor();
      measure();
      update(hold);
    },
    guess,
    /** Bring an item to the upper edge, or as near as the end allows. */
    show(index) {
      update({ index: Math.min(index, heights.length - 1), offset: 0 });
      own = scroller.scrollTop;
    },
    /** Move by so many pixels without being taken for the person. */
    nudge(by) {
      scroller.scrollTop += by;
      own = scroller.scrollTop;
    },
    /** True if a person has scrolled, not this code; the answer is given once. */
    scrolledByPerson() {
      const person = Math.abs(scroller.scrollTop - own) > 1 && (held || performance.now() - touched < AFTER_TOUCH);
      own = -1;
      return person;
    },
    /** The item that is read: at the top the first, at the end the last, between them what is at the same share of the view. */
    current() {
      const room = Math.max(1, total() - scroller.clientHeight);
      const share = Math.min(1, Math.max(0, scroller.scrollTop / room));
      return indexAt(scroller.scrollTop + share * (scroller.clientHeight - 2) + 1);
    },
    /** The item at the upper edge. */
    first: () => indexAt(scroller.scrollTop + 1),
    /** Where an item begins and ends in the view. */
    placeOf: (index) => [starts[index] - scroller.scrollTop, starts[index + 1] - scroller.scrollTop],
    /** For printing: everything is in the document. */
    setWhole(on) {
      const hold = anchor();
      drop(0);
      whole = on;
      update(hold);
    },
  };
}
