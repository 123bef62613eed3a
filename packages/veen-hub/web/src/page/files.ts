/** Files that were dropped or chosen, with the folder that they came from. */

import type { EvidenceFile } from "../verify/evidence/recognize.ts";

const paths = new WeakMap<File, string>();

/** The files of a drop, and what of it the browser did not open: its path, and the reason. */
export interface Dropped {
  readonly files: File[];
  readonly failed: [path: string, why: string][];
}

/** Return every file of a drop, also those in folders. */
export async function filesIn(transfer: DataTransfer): Promise<Dropped> {
  const entries = [...transfer.items]
    .map((item) => item.webkitGetAsEntry())
    .filter((entry) => entry !== null);
  const found: Dropped = { files: [], failed: [] };
  if (entries.length === 0) found.files.push(...transfer.files);
  for (const entry of entries) await walk(entry, found);
  return found;
}

async function walk(entry: FileSystemEntry, found: Dropped): Promise<void> {
  try {
    await open(entry, found);
  } catch (error) {
    found.failed.push([pathOf(entry), `the browser says: ${error}`]);
  }
}

const pathOf = (entry: FileSystemEntry): string => entry.fullPath.replace(/^\//, "");

async function open(entry: FileSystemEntry, found: Dropped): Promise<void> {
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) =>
      (entry as FileSystemFileEntry).file(resolve, reject),
    );
    paths.set(file, pathOf(entry));
    found.files.push(file);
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  for (;;) {
    const batch = await new Promise<FileSystemEntry[]>((resolve, reject) =>
      reader.readEntries(resolve, reject),
    );
    if (batch.length === 0) return;
    for (const each of batch) await walk(each, found);
  }
}

export async function read(file: File): Promise<EvidenceFile> {
  const name = paths.get(file) ?? (file.webkitRelativePath === "" ? file.name : file.webkitRelativePath);
  return { name, bytes: new Uint8Array(await file.arrayBuffer()) };
}
