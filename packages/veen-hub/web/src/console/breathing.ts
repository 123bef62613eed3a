/** Let the browser draw and take input between two pieces of long work. */
export function breathe(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}
