// Opens the pages of a console in Chromium and checks what only a browser can tell: axe's rules for
// accessibility, errors, requests to other origins, sideways scrolling, pages without script, keys,
// and that a live page keeps its focus. `cargo xtask console` installs what is imported here.
//
// usage: node walk.mjs --chromium PATH --live URL [--states DIRECTORY] [--shots DIRECTORY] [--pictures DIRECTORY]
import { createServer } from "node:http";
import { mkdirSync, readFileSync, readdirSync, existsSync } from "node:fs";
import { join, normalize } from "node:path";
import puppeteer from "puppeteer-core";

const options = Object.fromEntries(process.argv.slice(2).join(" ").split("--").filter(Boolean)
  .map((part) => part.trim().split(" ")).map(([name, ...rest]) => [name, rest.join(" ")]));
const axe = readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const SIZES = [["wide", 1440, 900], ["tablet", 768, 1024], ["phone", 320, 720]];
const problems = [];
let checks = 0;
const check = (isFine, what) => {
  checks += 1;
  if (!isFine) problems.push(what);
};

// The pages of invented brokers, from files, under the policy of the real ones.
const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'";
const FRAMED_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox";
const TYPES = { css: "text/css", js: "text/javascript", svg: "image/svg+xml", html: "text/html; charset=utf-8" };
const serveFiles = (directory) => new Promise((resolve) => {
  const server = createServer((request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url, "http://x").pathname));
    if (path === "/events" && server.streams) {
      response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
      server.streams.push(response.on("close", () => { response.isGone = true; }));
      return;
    }
    const isReport = path.startsWith("/reports/");
    const file = join(directory, isReport ? `${path}.html` : path);
    if (path.includes("..") || !existsSync(file) || !(isReport || path.includes("."))) {
      response.writeHead(404).end();
      return;
    }
    const policy = isReport ? FRAMED_POLICY : POLICY;
    response.writeHead(200, { "content-type": TYPES[file.split(".").pop()], "content-security-policy": policy });
    response.end(readFileSync(file));
  });
  server.listen(0, "127.0.0.1", () => resolve(server));
});

const browser = await puppeteer.launch({
  executablePath: options.chromium,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb"],
});

// Opens an address and returns the page, with everything that went wrong in `page.wrong`.
const open = async (address, { scheme = "light", width = 1440, height = 900, script = true } = {}) => {
  const page = await browser.newPage();
  page.wrong = [];
  const own = new URL(address).origin;
  // A 404 of /events on a page from a file is no error of the page.
  page.on("console", (message) => {
    const isExpected = /\/events|\/nothing$/.test(message.location().url ?? "");
    if (["error", "warn"].includes(message.type()) && !isExpected) page.wrong.push(message.text());
  });
  page.on("pageerror", (error) => page.wrong.push(String(error)));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(own) && !url.startsWith("data:")) page.wrong.push(`a request to ${url}`);
  });
  await page.setBypassCSP(false);
  await page.setJavaScriptEnabled(script);
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.setViewport({ width, height });
  await page.goto(address, { waitUntil: "load" });
  return page;
};

const violations = async (page) => {
  // By the debugger, which the page's policy does not bind; a report in its sandbox answers nothing.
  await page.evaluate(axe);
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"], iframes: false }));
  return found.violations.map((one) => `${one.id}: ${one.nodes.slice(0, 2).map((node) => node.html.slice(0, 140)).join(" | ")} ${one.nodes[0]?.failureSummary?.split("\n")[1] ?? ""}`);
};

const inspect = async (address, name) => {
  for (const scheme of ["light", "dark"]) {
    for (const [size, width, height] of SIZES) {
      const page = await open(address, { scheme, width, height });
      const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      check(over <= 0, `${name} ${scheme} ${size}: ${over} px sideways`);
      if (size !== "tablet") {
        for (const violation of await violations(page)) check(false, `${name} ${scheme} ${size}: axe ${violation}`);
      }
      for (const wrong of page.wrong) check(false, `${name} ${scheme} ${size}: ${wrong}`);
      checks += 2;
      if (options.shots) await page.screenshot({ path: join(options.shots, `${name.replaceAll(/[^\w-]/g, "_")}-${size}-${scheme}.png`), fullPage: true });
      await page.close();
    }
  }
  const page = await open(address, { script: false });
  const text = await page.$eval("main", (main) => main.textContent.trim().length);
  check(text > 40, `${name}: without script the page has ${text} letters`);
  await page.close();
};

// Tab reaches the skip link first, then the navigation; the focus is always visible.
const keyboard = async (address) => {
  const page = await open(address);
  await page.keyboard.press("Tab");
  check(await page.evaluate(() => document.activeElement.className) === "skip", "the first stop is the skip link");
  await page.keyboard.press("Enter");
  check(await page.evaluate(() => document.activeElement.id) === "main", "the skip link leads to the content");
  await page.keyboard.press("g");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("t")]);
  check(new URL(page.url()).pathname === "/topics", `g t leads to /topics, not ${page.url()}`);
  await page.keyboard.press("?");
  check(await page.$eval("#keys", (keys) => keys.open), "? opens the list of keys");
  await page.keyboard.press("Escape");
  for (let step = 0; step < 12; step += 1) {
    await page.keyboard.press("Tab");
    const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    check(ring !== "none", "the focus has a ring");
  }
  await page.close();
};

// Values change, and the focus, the selection and the scroll position stay.
const live = async (address) => {
  const page = await open(address);
  await page.waitForFunction(() => document.getElementById("live-text").textContent.startsWith("live "), { timeout: 15000 });
  await page.evaluate(() => {
    window.scrollTo(0, 300);
    document.querySelector("summary").focus();
    document.querySelector("details").open = true;
    window.changes = 0;
    new MutationObserver((all) => { window.changes += all.length; }).observe(document.querySelector("main"), { subtree: true, childList: true, characterData: true, attributes: true });
  });
  const before = await page.evaluate(() => ({ y: window.scrollY, focus: document.activeElement.textContent }));
  await new Promise((resolve) => setTimeout(resolve, 8000));
  const after = await page.evaluate(() => ({ y: window.scrollY, focus: document.activeElement.textContent, open: document.querySelector("details").open, changes: window.changes }));
  check(after.focus === before.focus && after.open, `focus and opened details stay: ${JSON.stringify(after)}`);
  check(after.changes > 0, "values change by themselves");
  check(Math.abs(after.y - before.y) <= 2, `the scroll position stays: ${before.y} → ${after.y}`);
  check(page.wrong.length === 0, `live: ${page.wrong.join("; ")}`);
  await page.close();
};

// A page whose stream is written here, and what the page was sent before its script ran.
const openStreamed = async (server, address, how) => {
  server.streams = [];
  const page = await open(address, how);
  while (server.streams.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
  const stream = server.streams[0];
  let count = 0;
  page.sent = (id) => page.evaluate(async (id) => {
    const text = await (await fetch(location.href)).text();
    return new DOMParser().parseFromString(text, "text/html").getElementById(id).outerHTML;
  }, id);
  // Returns when the script has taken the part: the beat after it has its own time.
  page.send = async (id, html) => {
    count += 1;
    if (id) stream.write(`event: part\ndata: ${JSON.stringify({ id, html })}\n\n`);
    stream.write("event: beat\ndata:\n\n");
    await page.evaluate((count) => { document.getElementById("live-text").textContent = `before ${count}`; }, count);
    stream.write("event: beat\ndata:\n\n");
    await page.waitForFunction((count) => document.getElementById("live-text").textContent !== `before ${count}`, { timeout: 15000 }, count);
  };
  page.end = () => stream.destroy();
  return page;
};

// What parts of a stream do to a page: buttons that were shown stay, a focused row stays the same
// row wherever it goes, a verdict that changed too soon is announced later, a lost connection is said.
const streamed = async (server, origin) => {
  const client = await openStreamed(server, `${origin}/loaded/clients-orders-writer.html`);
  await client.send("change", await client.sent("change"));
  check(await client.$eval("[data-copy=set]", (button) => !button.hidden), "the copy button stays when its part is sent again");
  const said = () => client.$eval("#said", (said) => said.textContent);
  const head = await client.sent("head");
  const verdict = (text) => head.replace(/data-verdict="[^"]*"/, `data-verdict="${text}"`).replace(/(<p class="lead"[^>]*>)[^<]*/, `$1${text}`);
  await client.send("head", verdict("It is slow."));
  check(await said() === "It is slow.", `a new verdict is announced: ${await said()}`);
  await client.send("head", verdict("It keeps up."));
  check(await said() === "It is slow.", "announcements are ten seconds apart");
  await client.evaluate(() => { const now = Date.now() + 11000; Date.now = () => now; });
  await client.send();
  check(await said() === "It keeps up.", `a verdict that changed too soon is announced later: ${await said()}`);
  client.end();
  await client.waitForFunction(() => document.getElementById("live-text").textContent.startsWith("connection lost"), { timeout: 15000 });
  for (const violation of await violations(client)) check(false, `connection lost: axe ${violation}`);
  if (options.shots) await client.screenshot({ path: join(options.shots, "lost-wide-light.png") });
  await client.close();

  const topics = await openStreamed(server, `${origin}/loaded/topics.html`);
  const names = () => topics.$$eval("#topics tbody th", (heads) => heads.map((head) => head.textContent));
  const before = await names();
  await topics.evaluate(() => document.querySelectorAll("#topics tbody th a")[1].focus());
  // The first two change places and a third is gone; of the others nothing is sent but their keys.
  const changed = await topics.evaluate((html) => {
    const block = new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
    const rows = [...block.querySelectorAll("tbody tr")];
    rows[0].before(rows[1]);
    rows[2].remove();
    rows.slice(3).forEach((row) => { row.replaceChildren(); row.dataset.same = ""; });
    return block.outerHTML;
  }, await topics.sent("topics"));
  await topics.send("topics", changed);
  const after = await names();
  check(JSON.stringify(after) === JSON.stringify([before[1], before[0], ...before.slice(3)]), `rows change their places: ${after.slice(0, 4)}`);
  check(await topics.evaluate(() => document.activeElement.textContent) === before[1], "the focused row stays the same row");
  check(await topics.$eval("#topics tbody tr:nth-child(5)", (row) => row.children.length > 1), "a row that is the same keeps its cells");
  check(topics.wrong.length === 0, `streamed: ${topics.wrong.join("; ")}`);
  await topics.close();
  server.streams = null;
};

// The pages of the documentation, of an invented broker: those of a real one change with every run.
const PICTURES = [["index", "overview", "light"], ["clients-orders-writer", "client", "light"], ["groups-billing", "group", "light"], ["requests", "requests", "dark"]];
const picture = async (server, origin) => {
  for (const [file, name, scheme] of PICTURES) {
    const page = await openStreamed(server, `${origin}/loaded/${file}.html`, { scheme, width: 1200, height: 720 });
    await page.send();
    await page.screenshot({ path: join(options.pictures, `console-${name}.png`) });
    await page.close();
  }
  server.streams = null;
};

const paths = async (start) => {
  const found = ["/", "/topics", "/clients", "/groups", "/requests", "/tenants", "/config", "/access", "/transactions", "/bench", "/help/metrics", "/nothing"];
  const page = await open(start);
  for (const place of ["topics", "clients", "groups"]) {
    await page.goto(new URL(`/${place}`, start).href);
    const first = await page.$$eval(`main a[href^="/${place}/"]`, (links) => links[0]?.getAttribute("href"));
    if (first) found.push(first);
    if (first && place === "topics") found.push(first.replace("/topics/", "/messages/"), `${first}/0`);
  }
  await page.close();
  return found;
};

if (options.shots) mkdirSync(options.shots, { recursive: true });
if (options.states) {
  const server = await serveFiles(options.states);
  const origin = `http://127.0.0.1:${server.address().port}`;
  for (const state of readdirSync(options.states).filter((name) => !["assets", "reports"].includes(name))) {
    const only = options.only?.split(",");
    for (const file of readdirSync(join(options.states, state)).filter((file) => !only || only.includes(file.replace(".html", "")))) {
      await inspect(`${origin}/${state}/${file}`, `${state}-${file.replace(".html", "")}`);
    }
  }
  await streamed(server, origin);
  if (options.pictures) await picture(server, origin);
  server.closeAllConnections();
  server.close();
}
if (options.live) {
  for (const path of await paths(options.live)) await inspect(new URL(path, options.live).href, `live${path}`);
  await keyboard(options.live);
  await live(options.live);
}
await browser.close();
[...new Set(problems)].forEach((problem) => console.log(`problem: ${problem}`));
console.log(`${checks} checks, ${new Set(problems).size} problems`);
process.exit(problems.length ? 1 : 0);
