// Opens the pages of a console in Chromium and checks what only a browser can tell: axe's rules for
// accessibility, errors, requests to other origins, sideways scrolling, pages without script, keys,
// and that a live page keeps its focus. `cargo xtask console` installs what is imported here.
//
// usage: node walk.mjs --chromium PATH [--live URL] [--states DIRECTORY] [--brief yes] [--shots DIRECTORY] [--pictures DIRECTORY]
//   --brief yes: every page in the size and colours that differ most
import { createServer, get } from "node:http";
import { mkdirSync, readFileSync, readdirSync, existsSync } from "node:fs";
import { join, normalize } from "node:path";
import puppeteer from "puppeteer-core";

const options = Object.fromEntries(process.argv.slice(2).join(" ").split("--").filter(Boolean)
  .map((part) => part.trim().split(" ")).map(([name, ...rest]) => [name, rest.join(" ")]));
const axe = readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const SIZES = [["wide", 1440, 900], ["tablet", 768, 1024], ["phone", 320, 720]];
// What differs most, where there is no time for all.
const BRIEF = ["light wide", "dark phone"];
const isBrief = options.brief === "yes";
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
    if (server.isGone) {
      request.destroy();
      return;
    }
    const policy = isReport ? FRAMED_POLICY : POLICY;
    response.writeHead(200, { "content-type": TYPES[file.split(".").pop()], "content-security-policy": policy });
    response.end(server.change ? server.change(readFileSync(file, "utf8")) : readFileSync(file));
  });
  server.listen(0, "127.0.0.1", () => resolve(server));
});

const browser = await puppeteer.launch({
  executablePath: options.chromium,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb"],
});

// Opens an address and returns the page, with everything that went wrong in `page.wrong`.
//   haste: how much faster its script's clock runs
const open = async (address, { scheme = "light", width = 1440, height = 900, script = true, haste = 1 } = {}) => {
  const page = await browser.newPage();
  await page.evaluateOnNewDocument((haste) => {
    const later = window.setTimeout;
    window.setTimeout = (work, ms = 0, ...rest) => later(work, ms / haste, ...rest);
  }, haste);
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
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"], iframes: false }));
  return found.violations.map((one) => `${one.id}: ${one.nodes.slice(0, 2).map((node) => node.html.slice(0, 140)).join(" | ")} ${one.nodes[0]?.failureSummary?.split("\n")[1] ?? ""}`);
};

// One load of a page, in every size and colour.
const inspect = async (address, name) => {
  const page = await open(address);
  // By the debugger, which the page's policy does not bind; a report in its sandbox answers nothing.
  await page.evaluate(axe);
  for (const scheme of ["light", "dark"]) {
    for (const [size, width, height] of SIZES) {
      if (isBrief && !BRIEF.includes(`${scheme} ${size}`)) continue;
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      await page.setViewport({ width, height });
      const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      check(over <= 0, `${name} ${scheme} ${size}: ${over} px sideways`);
      if (size !== "tablet") {
        for (const violation of await violations(page)) check(false, `${name} ${scheme} ${size}: axe ${violation}`);
      }
      checks += 1;
      if (options.shots) await page.screenshot({ path: join(options.shots, `${name.replaceAll(/[^\w-]/g, "_")}-${size}-${scheme}.png`), fullPage: true });
    }
  }
  for (const wrong of page.wrong) check(false, `${name}: ${wrong}`);
  checks += 1;
  await page.close();
  if (isBrief) return;
  const plain = await open(address, { script: false });
  const text = await plain.$eval("main", (main) => main.textContent.trim().length);
  check(text > 40, `${name}: without script the page has ${text} letters`);
  await plain.close();
};

// Two pages at a time, but for pictures: Chromium draws only the page in front.
const inspectAll = async (pages) => {
  const rest = [...pages];
  const work = async () => {
    for (let next = rest.shift(); next; next = rest.shift()) await inspect(...next);
  };
  await Promise.all(options.shots ? [work()] : [work(), work()]);
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
  await client.evaluate(axe);
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

const liveText = (page) => page.$eval("#live-text", (text) => text.textContent);
const until = (page, begin) => page.waitForFunction((begin) => document.getElementById("live-text").textContent.startsWith(begin), { timeout: 30000 }, begin);

// A proxy that takes the stream and passes nothing on: the page asks for itself every five seconds,
// keeps its focus, says when the broker is gone, and that it is back.
const heldBack = async (server, origin) => {
  server.streams = [];
  const page = await open(`${origin}/loaded/topics.html`, { haste: 20 });
  await page.evaluate(() => document.querySelectorAll("#topics tbody th a")[1].focus());
  const focused = () => page.evaluate(() => document.activeElement.textContent);
  const before = await focused();
  server.change = (text) => text.replaceAll("7 days", "9 days");
  await until(page, "every 5 s");
  check(await page.$eval("#topics", (block) => block.textContent.includes("9 days")), "a page whose stream is held back asks for itself");
  check(await focused() === before, "the focus stays where the page asks for itself");
  check(server.streams.length === 1 && server.streams[0].isGone, "the stream that is held back is closed");
  server.change = (text) => text.replaceAll("7 days", "11 days");
  await page.waitForFunction(() => document.getElementById("topics").textContent.includes("11 days"), { timeout: 30000 });
  await page.click("#freeze");
  check((await liveText(page)).startsWith("frozen at"), `it can be frozen: ${await liveText(page)}`);
  server.change = (text) => text.replaceAll("7 days", "13 days");
  await new Promise((resolve) => setTimeout(resolve, 1000));
  check(await page.$eval("#topics", (block) => block.textContent.includes("11 days")), "a frozen page asks for nothing");
  await page.click("#freeze");
  await until(page, "every 5 s");
  page.wrong.length = 0;
  server.isGone = true;
  await until(page, "connection lost");
  server.isGone = false;
  await until(page, "every 5 s");
  await page.close();
  server.streams = server.change = null;
};

// The same before a broker.
const throughProxy = async (live) => {
  const proxy = createServer((request, response) => {
    // Host stays as it is: what its Origin does not fit is refused.
    const passed = get(new URL(request.url, live), { headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      // What is buffered comes when its source ends, which a stream of events does not.
      const pieces = [];
      answer.on("data", (piece) => pieces.push(piece));
      answer.on("end", () => response.end(Buffer.concat(pieces)));
    });
    passed.on("error", () => response.destroy());
    response.on("close", () => passed.destroy());
  });
  await new Promise((resolve) => { proxy.listen(0, "127.0.0.1", resolve); });
  const page = await open(`http://127.0.0.1:${proxy.address().port}/`, { haste: 10 });
  await until(page, "every 5 s");
  const first = await page.$eval("main", (main) => main.textContent);
  await page.waitForFunction((first) => document.querySelector("main").textContent !== first, { timeout: 60000 }, first);
  check(page.wrong.length === 0, `through a proxy: ${page.wrong.join("; ")}`);
  await page.close();
  proxy.closeAllConnections();
  proxy.close();
};

// A partition that is written to faster than it can be read: what is sent of it, and what is counted.
const followed = async (live) => {
  const page = await open(new URL("/messages/orders?follow=1", live).href);
  const session = await page.createCDPSession();
  await session.send("Network.enable");
  await until(page, "live ");
  let bytes = 0;
  session.on("Network.eventSourceMessageReceived", ({ data }) => { bytes += data.length; });
  const seconds = 10;
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  const shown = await page.evaluate(() => ({ rows: document.querySelectorAll("#records li").length, skipped: /\d skipped/.test(document.getElementById("records").textContent) }));
  check(shown.rows > 0 && shown.rows <= 40, `a followed partition shows ${shown.rows} rows`);
  check(shown.skipped, "what is not shown of it is counted");
  // One piece of twenty records may come at the end of the time.
  check(bytes > 0 && bytes <= (seconds + 1) * 10000, `a followed partition is sent ${bytes} bytes in ${seconds} s`);
  await Promise.all([page.waitForNavigation(), page.evaluate(() => document.querySelector("#records li a").click())]);
  check(/offset=\d+/.test(page.url()) && await page.$eval("#records li b", (offset) => offset.textContent.length > 0), "the offset leads to the record");
  check(page.wrong.length === 0, `followed: ${page.wrong.join("; ")}`);
  await page.close();
};

// A value that is too long to be shown is a file; a filter by a JSON pointer finds one record.
const looked = async (live, bytes) => {
  const page = await open(new URL("/messages/large", live).href);
  const file = await page.evaluate(async () => {
    const link = document.querySelector("#records a[download]");
    const answer = await fetch(link.href);
    return { bytes: (await answer.arrayBuffer()).byteLength, kind: answer.headers.get("content-disposition") };
  });
  check(file.bytes === bytes && file.kind.startsWith("attachment"), `the file of a value of ${bytes} bytes: ${JSON.stringify(file)}`);
  await page.type("[name=pointer]", "/no/such/place");
  await Promise.all([page.waitForNavigation(), page.click("form.fil button")]);
  check(page.url().includes("pointer=%2Fno%2Fsuch%2Fplace") && (await page.$eval("#records", (block) => block.textContent)).includes("Nothing to show here"), "a pointer that no value has finds nothing");
  await page.close();
};

// The slowest of an hour, of one API.
const filtered = async (live) => {
  const page = await open(new URL("/requests", live).href);
  await page.select("[name=of]", "hour");
  await page.select("[name=api]", "Produce");
  await Promise.all([page.waitForNavigation(), page.click("form.fil button")]);
  const apis = await page.$$eval(".wf li b:first-child", (names) => names.map((name) => name.textContent));
  const found = apis.filter((name) => /^[A-Z]/.test(name));
  check(found.length > 0 && found.every((name) => name === "Produce"), `slow requests of one API: ${found.slice(0, 5)}`);
  check((await page.$eval("#head", (head) => head.textContent)).includes("the last hour"), "they are those of the last hour");
  await page.click("#freeze");
  check((await liveText(page)).startsWith("frozen"), "they can be frozen");
  await Promise.all([page.waitForNavigation(), page.evaluate(() => document.querySelector(".wf a").click())]);
  check(new URL(page.url()).pathname.startsWith("/clients/"), `a request leads to its client: ${page.url()}`);
  await page.close();
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
  const only = options.only?.split(",");
  const isWanted = (file) => !only || only.includes(file.replace(".html", ""));
  const states = readdirSync(options.states).filter((name) => !["assets", "reports"].includes(name));
  const pages = states.flatMap((state) => readdirSync(join(options.states, state)).filter(isWanted)
    .map((file) => [`${origin}/${state}/${file}`, `${state}-${file.replace(".html", "")}`]));
  await inspectAll(pages);
  await streamed(server, origin);
  await heldBack(server, origin);
  if (options.pictures) await picture(server, origin);
  server.closeAllConnections();
  server.close();
}
if (options.live) {
  await inspectAll((await paths(options.live)).map((path) => [new URL(path, options.live).href, `live${path}`]));
  await keyboard(options.live);
  await live(options.live);
  await followed(options.live);
  await looked(options.live, Number(options.large));
  await filtered(options.live);
  await throughProxy(options.live);
}
await browser.close();
[...new Set(problems)].forEach((problem) => console.log(`problem: ${problem}`));
console.log(`${checks} checks, ${new Set(problems).size} problems`);
process.exit(problems.length ? 1 : 0);
