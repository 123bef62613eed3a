/** Deep links: the part after `#`, such as `#/streams/<label>/17`. */
import { Subject } from "./subject.ts";

export interface Route {
  readonly screen: string;
  readonly parts: readonly string[];
}

export function parseRoute(fragment: string): Route {
  const [screen = "", ...parts] = fragment.replace(/^#?\/?/, "").split("/").map(decode);
  return { screen: screen || "overview", parts };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function linkTo(screen: string, ...parts: readonly (string | number)[]): string {
  return `#/${[screen, ...parts].map((part) => encodeURIComponent(String(part))).join("/")}`;
}

export function watchRoute(): Subject<Route> {
  const route = new Subject(parseRoute(location.hash));
  addEventListener("hashchange", () => route.set(parseRoute(location.hash)));
  return route;
}

export function go(link: string): void {
  location.hash = link;
}
