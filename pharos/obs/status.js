// Renews the page without closing what is open. Without scripts the browser reloads it (the noscript element).
const every = Number(document.documentElement.dataset.refresh) * 1000;
const opened = () => new Set([...document.querySelectorAll("details[open]")].map((part) => part.dataset.key));
async function renew() {
  if (document.hidden || !getSelection().isCollapsed) return;
  try {
    const reply = await fetch(location.href, { headers: { accept: "text/html" }, signal: AbortSignal.timeout(every) });
    if (!reply.ok) throw reply.status;
    const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
    const open = opened();
    document.querySelector("main").replaceWith(fresh.querySelector("main"));
    for (const part of document.querySelectorAll("details")) part.open = open.has(part.dataset.key);
    document.title = fresh.title;
    document.body.classList.remove("lost");
  } catch {
    document.body.classList.add("lost");
  }
}
setInterval(renew, every);
document.addEventListener("visibilitychange", renew);
