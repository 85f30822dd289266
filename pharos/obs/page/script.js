// Renews the page in place: what did not change stays as it is, so nothing that is open, focused or scrolled is lost.
const every = Number(document.documentElement.dataset.refresh) * 1000;
const lost = document.getElementById("lost");
const pause = document.getElementById("pause");
const keyOf = (node) => (node.nodeType === 1 ? node.dataset.key || node.id : "");

function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName || keyOf(old) !== keyOf(fresh)) return old.replaceWith(fresh);
  if (old.nodeType !== 1) return void (old.data = fresh.data);
  if (old.hasAttribute("data-own")) return;
  const isOurs = (name) => name === "open" && old.nodeName === "DETAILS"; // the reader opened it
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !isOurs(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (!isOurs(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  const keyed = new Map([...old.children].reverse().filter(keyOf).map((child) => [keyOf(child), child])); // the first of each
  const wanted = new Set([...fresh.children].map(keyOf));
  for (const [key, child] of keyed) if (!wanted.has(key)) child.remove();
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const key = keyOf(child);
    const found = key ? keyed.get(key) : at && !keyOf(at) ? at : null;
    keyed.delete(key); // clients may give many requests one id
    if (!found) {
      old.insertBefore(child, at);
      continue;
    }
    if (found === at) at = at.nextSibling;
    else old.insertBefore(found, at);
    morph(found, child);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

let busy = false;
async function renew() {
  if (busy) return;
  busy = true;
  try {
    const reply = await fetch(location.href, { headers: { accept: "text/html" }, signal: AbortSignal.timeout(every), cache: "no-store" });
    if (!reply.ok) throw new Error(`it answers ${reply.status}`);
    const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
    morph(document.getElementById("page"), fresh.getElementById("page"));
    document.title = fresh.title;
    document.body.classList.remove("lost-sight");
    lost.textContent = "";
  } catch {
    document.body.classList.add("lost-sight");
    lost.textContent = `Pharos does not answer: shown as it was at ${document.querySelector(".asof time").textContent}.`;
  } finally {
    busy = false;
  }
}
function tick() {
  if (!document.hidden && getSelection().isCollapsed && pause.getAttribute("aria-pressed") !== "true") renew();
}
pause.hidden = false;
document.addEventListener("click", (event) => {
  if (event.target === pause) pause.setAttribute("aria-pressed", String(pause.getAttribute("aria-pressed") !== "true"));
  if (event.target.id !== "renew" || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  renew();
});
// What a link within the page leads to may be folded away.
addEventListener("hashchange", () => document.getElementById(decodeURIComponent(location.hash.slice(1)))?.closest("details")?.setAttribute("open", ""));
setInterval(tick, every);
document.addEventListener("visibilitychange", tick);
