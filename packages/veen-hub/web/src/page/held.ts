/** The list of files on the page: no file replaces another. No DOM here. */

import type { EvidenceFile } from "../verify/evidence/recognize.ts";
import { equal } from "../verify/wire/bytes.ts";

/**
 * Return the files with the given ones added. A file with the name of another but with other content stays
 * beside it, in a folder with a number; what was given together stays together.
 */
export function withFiles(
  held: readonly EvidenceFile[],
  given: readonly EvidenceFile[],
): readonly EvidenceFile[] {
  const names = new Map(held.map((file) => [file.name, file]));
  const fits = (name: string, file: EvidenceFile): boolean => {
    const other = names.get(name);
    return other === undefined || equal(other.bytes, file.bytes);
  };
  let first = 1;
  while (!given.every((file) => fits(numbered(file.name, first), file))) first += 1;
  for (const file of given) {
    let number = first;
    while (!fits(numbered(file.name, number), file)) number += 1;
    const name = numbered(file.name, number);
    names.set(name, { name, bytes: file.bytes });
  }
  return [...names.values()];
}

const numbered = (name: string, number: number): string => (number === 1 ? name : `${number}/${name}`);
