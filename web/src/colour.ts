// Colours of hosts and VMs: a name has the same one on the pages of all hosts, whatever their order. No DOM: web/test/sentence.mjs asks it.

/** How many colours lines have: `--line-0` and on in style.css. */
export const COLOURS = 8;

/** Colour of each name: by the name alone, and the next free one where two names have one, as long as there are enough. */
export function colours(names: string[]): Map<string, number> {
  const found = new Map<string, number>();
  const taken = new Set<number>();
  for (const name of names.toSorted()) {
    let colour = hash(name) % COLOURS;
    for (let tried = 0; tried < COLOURS && taken.has(colour); tried += 1) colour = (colour + 1) % COLOURS;
    found.set(name, colour);
    taken.add(colour);
  }
  return found;
}

/** 32-bit FNV-1a. */
function hash(name: string): number {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(name)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash;
}
