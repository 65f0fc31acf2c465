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
  for (const { name, value } of next.attributes) {
    if (now.getAttribute(name) !== value) now.setAttribute(name, value);
  }
  const old = [...now.childNodes], fresh = [...next.childNodes];
  fresh.forEach((child, index) => {
    if (index < old.length) morph(old[index], child);
    else now.append(child);
  });
  old.slice(fresh.length).forEach((child) => child.remove());
};

// Live: fragments by id. The last values stay on the page when the connection is lost.
const live = byId("live"), liveText = byId("live-text");
let stream = null, isFrozen = false, lastVerdict = "", saidAt = 0, lastAt = "";
const say = (state, text) => {
  live.className = `live ${state}`;
  if (liveText.textContent !== text) liveText.textContent = text;
};
const clock = () => new Date().toISOString().slice(11, 19);
// Verdicts are announced when they change, at most every ten seconds.
const announce = () => {
  const lead = doc.querySelector("[data-verdict]");
  const verdict = lead ? lead.dataset.verdict : "";
  if (verdict !== lastVerdict && lastVerdict && Date.now() - saidAt > 10000) {
    byId("said").textContent = lead.textContent;
    saidAt = Date.now();
  }
  lastVerdict = verdict;
};
const parser = new DOMParser();
const take = ({ id, html }) => {
  const now = byId(id);
  const next = parser.parseFromString(html, "text/html").body.firstElementChild;
  // A selection inside would be lost where its text is replaced.
  const selection = getSelection();
  if (!now || !next || (!selection.isCollapsed && now.contains(selection.anchorNode))) return;
  morph(now, next);
};
const begin = () => {
  if (stream || isFrozen || !body.dataset.live) return;
  stream = new EventSource(body.dataset.live);
  stream.addEventListener("part", (event) => {
    take(JSON.parse(event.data));
    announce();
  });
  stream.addEventListener("beat", () => {
    lastAt = clock();
    say("on", `live ${lastAt} UTC`);
  });
  stream.onerror = ({ target }) => {
    target.close();
    stream = null;
    // Before the first value every place may be taken; after it, the broker has gone.
    if (lastAt) say("lost", `connection lost, values of ${lastAt} UTC`);
    setTimeout(begin, lastAt ? 3000 : 10000);
  };
};
const freezeButton = byId("freeze");
const freeze = () => {
  isFrozen = !isFrozen;
  freezeButton.textContent = isFrozen ? "Go on" : "Freeze";
  if (isFrozen) {
    stream?.close();
    stream = null;
    say("", `frozen at ${lastAt} UTC`);
  } else begin();
};
freezeButton.onclick = freeze;
freezeButton.hidden = false;
doc.addEventListener("visibilitychange", () => {
  if (doc.hidden) {
    stream?.close();
    stream = null;
  } else begin();
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
