// Builds each page as one HTML file with everything inside; the same sources give the same bytes.
//
//   node build.mjs           write the pages into the Python package
//   node build.mjs --check   fail if a page in the Python package differs from its sources
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "../src/veen_hub/web");

/** Pages: `connect` names what the script may fetch; the verifier page fetches nothing. */
const PAGES = [
  { name: "verify", folder: "page", title: "VEEN verifier", connect: "'none'" },
  { name: "console", folder: "console", title: "VEEN console", connect: "'self'" },
];

const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

async function bundle(entry, loader) {
  const made = await build({
    entryPoints: [join(here, "src", entry)],
    absWorkingDir: here,
    bundle: true,
    write: false,
    minify: true,
    charset: "ascii",
    legalComments: "none",
    target: "es2022",
    format: loader === "js" ? "iife" : undefined,
    logLevel: "warning",
  });
  return made.outputFiles[0].text.trim();
}

async function render({ name, folder, title, connect }) {
  const script = await bundle(`${folder}/main.ts`, "js");
  const style = await bundle(`${folder}/page.css`, "css");
  for (const [what, text] of [["script", script], ["style", style]]) {
    if (text.toLowerCase().includes(`</${what}`)) throw new Error(`${name}: the ${what} contains its own end tag`);
  }
  const policy = [
    "default-src 'none'",
    `script-src ${hash(script)}`,
    `style-src ${hash(style)}`,
    `connect-src ${connect}`,
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
  const body = readFileSync(join(here, "src", folder, "body.html"), "utf8").trim();
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>${title}</title>
<style>${style}</style>
</head>
<body>
${body}
<script>${script}</script>
</body>
</html>
`;
}

const checking = process.argv.includes("--check");
let stale = 0;
for (const page of PAGES.filter(({ folder }) => existsSync(join(here, "src", folder, "main.ts")))) {
  const html = await render(page);
  const file = join(target, `${page.name}.html`);
  const held = existsSync(file) ? readFileSync(file, "utf8") : "";
  const digest = createHash("sha256").update(html).digest("hex");
  const size = `${(Buffer.byteLength(html) / 1024).toFixed(0)} KiB`;
  if (checking && held !== html) {
    console.error(`${page.name}.html is not what its sources give: run \`npm run build\` in packages/veen-hub/web`);
    stale += 1;
  } else if (!checking) {
    mkdirSync(target, { recursive: true });
    writeFileSync(file, html);
  }
  console.log(`${page.name}.html ${size} sha256 ${digest}`);
}
process.exitCode = stale ? 1 : 0;
