// actionlint over this repository's workflows, and over those that docs/ shows; a broken one shows that it looks.
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [root, installed] = process.argv.slice(2);
const require = createRequire(join(installed, "package.json"));
const { createLinter } = await import(pathToFileURL(require.resolve("actionlint").replace(/cjs$/, "mjs")));
const lint = await createLinter();

const workflows = new Map();
const folder = join(root, ".github", "workflows");
for (const name of readdirSync(folder)) workflows.set(name, readFileSync(join(folder, name), "utf8"));
for (const page of ["ci.md", "untrusted.md"]) {
  const text = readFileSync(join(root, "docs", page), "utf8");
  [...text.matchAll(/```yaml\n(.*?)```/gs)].forEach(([, shown], n) => {
    if (shown.includes("jobs:")) workflows.set(`${page}, ${n + 1}`, /^on:/m.test(shown) ? shown : `on: push\n${shown}`);
  });
}
const broken = "on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n      - run: echo ${{ github.nothing }}\n";
if (!lint(broken, "broken.yml").length) throw new Error("actionlint accepts a property that does not exist");

let problems = 0;
for (const [name, text] of workflows) {
  for (const { line, column, message } of lint(text, name)) {
    problems += 1;
    console.error(`${name}:${line}:${column}: ${message}`);
  }
}
console.log(`${workflows.size} workflows, ${problems} problems`);
process.exit(problems || workflows.size < 2 ? 1 : 0);
