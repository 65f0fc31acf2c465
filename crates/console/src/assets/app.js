// The console's script. Every page works without it: it only brings what has changed, the theme,
// and keys.
const doc = document, root = doc.documentElement, body = doc.body;
const byId = (id) => doc.getElementById(id);

// Theme: the system's, unless it was chosen.
const dark = matchMedia("(prefers-color-scheme: dark)");
const themeButton = byId("theme");
const isDark = () => (root.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
const nameTheme = () => {
  themeButton.textContent = isDark() ? "Light" : "Dark";
  themeButton.setAttribute("aria-label", `Switch to the ${themeButton.textContent.toLowerCase()} theme`);
};
const stored = (name, value) => {
  try { return value === undefined ? localStorage.getItem(name) : localStorage.setItem(name, value); }
  catch { return null; }
};
const chosen = stored("theme");
if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
themeButton.onclick = () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  stored("theme", root.dataset.theme);
  nameTheme();
};
dark.addEventListener("change", nameTheme);
themeButton.hidden = false;
nameTheme();

// Makes `now` the same as `next` by changing only what differs: focus, selection, scroll positions
// and opened details stay.
const morph = (now, next) => {
  if (now.nodeType !== next.nodeType || now.nodeName !== next.nodeName) return now.replaceWith(next);
  if (now.nodeType === 3) {
    if (now.data !== next.data) now.data = next.data;
    return;
  }
  if (now.nodeType !== 1) return;
  const isField = /^(INPUT|SELECT|TEXTAREA)$/.test(now.nodeName);
  if (isField && (doc.activeElement === now || now.dataset.edited)) return;
  for (const { name } of [...now.attributes]) {
    if (!next.hasAttribute(name) && name !== "open") now.removeAttribute(name);
  }
  // A button that was shown because there is a script stays.
  const isShown = now.dataset.copy && !now.hidden;
  for (const { name, value } of next.attributes) {
    if (now.getAttribute(name) !== value && !(isShown && name === "hidden")) now.setAttribute(name, value);
  }
  morphChildren(now, next);
};
const keyOf = (node) => node.nodeType === 1 ? node.dataset.key : undefined;
// Rows keep their element by their key wherever they are now, all others by their position.
const morphChildren = (now, next) => {
  const rows = new Map([...now.childNodes].filter(keyOf).map((row) => [keyOf(row), row]));
  const others = [...now.childNodes].filter((child) => !keyOf(child));
  const held = doc.activeElement;
  let place = now.firstChild;
  for (const child of [...next.childNodes]) {
    const key = keyOf(child);
    const own = key ? rows.get(key) : others.shift();
    if (key) rows.delete(key);
    // A row that is the same comes without its cells.
    const isSame = key && child.dataset.same !== undefined;
    if (isSame && !own) isBehind = true;
    if (!own) {
      if (!isSame) now.insertBefore(child, place);
      continue;
    }
    if (own === place) place = place.nextSibling;
    else now.insertBefore(own, place);
    if (!isSame) morph(own, child);
  }
  [...rows.values(), ...others].forEach((child) => child.remove());
  // Moving an element takes the focus from what is in it.
  if (held !== doc.activeElement && now.contains(held)) held.focus({ preventScroll: true });
};

// Live: fragments by id. The last values stay on the page when the connection is lost.
const live = byId("live"), liveText = byId("live-text");
// Behind: a part was not taken, so that those after it do not fit.
let stream = null, isFrozen = false, isBehind = false, saidAt = 0, lastAt = "";
// The stream has a beat every five seconds at least. A proxy that holds it back lets none through:
// then the page asks for itself.
const SILENCE_MS = 12000, POLL_MS = 5000;
let silence = 0, poll = 0;
const say = (state, text) => {
  live.className = `live ${state}`;
  if (liveText.textContent !== text) liveText.textContent = text;
};
const clock = () => new Date().toISOString().slice(11, 19);
// Verdicts are announced when they change, at most every ten seconds; one that changed meanwhile
// is announced then.
const lead = () => doc.querySelector("[data-verdict]");
let lastVerdict = lead()?.dataset.verdict;
const announce = () => {
  const now = lead();
  if (!now || now.dataset.verdict === lastVerdict || Date.now() - saidAt < 10000) return;
  byId("said").textContent = now.textContent;
  saidAt = Date.now();
  lastVerdict = now.dataset.verdict;
};
const parser = new DOMParser();
const take = ({ id, html }) => {
  const now = byId(id);
  const next = parser.parseFromString(html, "text/html").body.firstElementChild;
  // A selection inside would be lost where its text is replaced.
  const selection = getSelection();
  if (!now || !next) return;
  if (!selection.isCollapsed && now.contains(selection.anchorNode)) isBehind = true;
  else morph(now, next);
};
// A new stream begins with all parts.
const catchUp = () => {
  if (!isBehind || !getSelection().isCollapsed) return;
  isBehind = false;
  end();
  begin();
};
const lost = () => say("lost", `connection lost, values of ${lastAt} UTC`);
// The page without its stream: the same parts, out of the page as it is now.
const ask = async () => {
  const own = poll;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    const next = parser.parseFromString(await answer.text(), "text/html").getElementById("main");
    if (own !== poll) return;
    for (const part of next.children) if (part.id) take({ id: part.id, html: part.outerHTML });
    isBehind = false;
    lastAt = clock();
    say("on", `every 5 s, ${lastAt} UTC`);
    announce();
  } catch {
    if (own !== poll) return;
    lost();
  }
  poll = setTimeout(ask, POLL_MS);
};
const heard = () => {
  clearTimeout(silence);
  silence = setTimeout(() => {
    end();
    poll = setTimeout(ask);
  }, SILENCE_MS);
};
const begin = () => {
  if (stream || poll || isFrozen || !body.dataset.live) return;
  stream = new EventSource(body.dataset.live);
  heard();
  stream.addEventListener("part", (event) => take(JSON.parse(event.data)));
  stream.addEventListener("beat", () => {
    lastAt = clock();
    heard();
    say("on", `live ${lastAt} UTC`);
    announce();
    catchUp();
  });
  stream.onerror = () => {
    end();
    // Before the first value every place may be taken; after it, the broker has gone.
    if (lastAt) lost();
    setTimeout(begin, lastAt ? 3000 : 10000);
  };
};
const end = () => {
  stream?.close();
  clearTimeout(silence);
  clearTimeout(poll);
  stream = null;
  poll = 0;
};
const freezeButton = byId("freeze");
const freeze = () => {
  isFrozen = !isFrozen;
  freezeButton.textContent = isFrozen ? "Go on" : "Freeze";
  if (isFrozen) {
    end();
    say("", `frozen at ${lastAt} UTC`);
  } else begin();
};
freezeButton.onclick = freeze;
freezeButton.hidden = false;
doc.addEventListener("visibilitychange", () => {
  if (doc.hidden) end();
  else begin();
});
begin();

// Fields: edited ones keep their value and are marked.
doc.addEventListener("input", ({ target }) => {
  if (target.form) {
    target.dataset.edited = "1";
    target.classList.toggle("ed", target.value !== target.defaultValue);
  }
});

// Copies the text of an element: `data-copy` is its id.
doc.addEventListener("click", async ({ target }) => {
  const button = target.closest?.("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(byId(button.dataset.copy).textContent);
    byId("said").textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(byId(button.dataset.copy));
  }
});
doc.querySelectorAll("[data-copy]").forEach((button) => { button.hidden = false; });

// Keys: those of `ottla doctor --watch`, and g with a letter to go to a page.
const places = { o: "/", t: "/topics", c: "/clients", g: "/groups", n: "/tenants", r: "/requests", s: "/config" };
const help = byId("keys");
let goes = false;
const rows = () => [...doc.querySelectorAll("main tbody th a, main .fi a, main .wf a")];
const step = (by) => {
  const all = rows();
  if (all.length) all[Math.max(0, Math.min(all.length - 1, all.indexOf(doc.activeElement) + by))].focus();
};
doc.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.nodeName)) return;
  if (goes && places[key]) location.assign(places[key]);
  else if (key === "j") step(1);
  else if (key === "k") step(-1);
  else if (key === "p") freeze();
  else if (key === "/") byId("find")?.focus();
  else if (key === ".") byId("what-if")?.querySelector("input")?.focus();
  else if (key === "?") help.open ? help.close() : help.showModal();
  else if (key !== "g") return;
  goes = key === "g" && !goes;
  event.preventDefault();
});
