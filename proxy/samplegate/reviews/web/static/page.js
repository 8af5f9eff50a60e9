// Progressive enhancement of the pages: countdowns, live updates, and a preview of edits while typing. Pages work without it.
"use strict";

const skew = Number(document.documentElement.dataset.now) - Date.now() / 1000;

function span(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  let left = Math.max(0, Math.floor(seconds));
  const parts = [];
  for (const [name, size] of units) {
    const count = Math.floor(left / size);
    left %= size;
    if (count || (parts.length && left)) parts.push([count, name]);
    if (parts.length === 2) break;
  }
  return parts.filter(([count]) => count).map(([count, name]) => `${count} ${name}`).join(" ") || "0 s";
}

function tick() {
  const now = Date.now() / 1000 + skew;
  let over = false;
  for (const clock of document.querySelectorAll(".countdown")) {
    const left = Number(clock.dataset.until) - now;
    const said = span(left);
    if (clock.textContent !== said) clock.textContent = said;
    clock.classList.toggle("soon", left < 30);
    if (left <= 0 && !clock.dataset.over) over = clock.dataset.over = "yes";
  }
  return over;
}

const local = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short",
});

// Shows times in the browser's time zone. The UTC that the server wrote moves to the tooltip.
function localize(root) {
  for (const time of root.querySelectorAll("time:not([title])")) {
    time.title = time.textContent;
    time.textContent = local.format(new Date(time.dateTime));
  }
}

async function load(address, options) {
  const answer = await fetch(address, { credentials: "same-origin", redirect: "error", ...options });
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// Inserts only HTML that our own server rendered. Replaces lists and notices, never forms, because they contain unsaved input.
function swap(id, from) {
  const [ours, theirs] = [document.getElementById(id), from.getElementById(id)];
  if (ours && theirs) {
    const focused = ours.contains(document.activeElement) ? document.activeElement : null;
    ours.replaceWith(document.adoptNode(theirs));
    localize(theirs);
    const same = [...theirs.querySelectorAll("a")].find((link) => link.href === focused?.href);
    if (focused) (same ?? theirs).focus({ preventScroll: true });
  }
  return theirs;
}

function later(action, wait) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(() => action().catch(() => {}), wait);
  };
}

const list = document.getElementById("list");
const review = document.querySelector("[data-review]");

async function reloadList() {
  const focused = document.activeElement?.closest("[data-id]")?.dataset.id;
  const shown = document.getElementById("list").dataset; // the address includes its filter and page
  const before = Number(shown.count);
  const page = await load(shown.at);
  const fresh = swap("list", page);
  if (!fresh) return;
  document.title = page.title;
  const count = Number(fresh.dataset.count);
  if (count !== before) document.getElementById("told").textContent = count === 1 ? "1 pending review" : `${count} pending reviews`;
  if (focused) document.querySelector(`[data-id="${CSS.escape(focused)}"] a`)?.focus();
  tick();
}

// Shows the server's UI when it has been read. What was typed into the form stays.
function swapUi(page) {
  const [ours, theirs] = [document.getElementById("ui"), page.getElementById("ui")];
  if (!ours || !theirs || ours.dataset.state === theirs.dataset.state) return;
  for (const id of ["ui", "ui-facts", "events"]) swap(id, page);
  document.dispatchEvent(new Event("ui-changed"));
}

async function reloadStanding() {
  const page = await load(review.dataset.at); // not location.href: after a refused form it is another address
  const fresh = page.querySelector("[data-review]");
  if (!fresh) return;
  swap("standing", page);
  swapUi(page);
  tick();
  if (fresh.dataset.state === review.dataset.state) return;
  review.dataset.state = fresh.dataset.state;
  document.dispatchEvent(new Event("review-ended"));
  const standing = document.getElementById("standing");
  standing.setAttribute("role", "alert");
  const again = document.createElement("p");
  const link = Object.assign(document.createElement("a"), { href: review.dataset.at, textContent: "Reload to see the result" });
  again.append(link);
  standing.append(again);
  for (const button of document.querySelectorAll(".review button")) button.disabled = true;
}

if (list || review?.dataset.live) {
  const reload = later(list ? reloadList : reloadStanding, 150);
  const source = new EventSource("/reviews/events");
  const light = document.querySelector(".live");
  source.addEventListener("open", () => {
    light?.classList.add("on");
    reload(); // catch up on changes since the page was rendered, or since the stream broke
  });
  source.addEventListener("error", () => light?.classList.remove("on"));
  source.addEventListener("change", (event) => {
    const change = JSON.parse(event.data);
    if (change.what === "opened") notify(change);
    if (list || change.review === review.dataset.review) reload();
  });
  setInterval(() => tick() && reload(), 1000);
}
tick();
localize(document);

// Notifications of this browser, only after a click on the button. They name the server and the kind of request, never its content.
const OPTED_IN = "samplegate.notify";

function optedIn() {
  try {
    return localStorage.getItem(OPTED_IN) === "yes" && Notification.permission === "granted";
  } catch {
    return false; // the browser has no notifications, or no storage
  }
}

function notify(change) {
  if (!optedIn() || (document.visibilityState === "visible" && document.hasFocus())) return;
  try {
    const what = { sampling: "Sampling request", elicitation: "Form or URL request" }[change.kind] ?? "Request";
    const told = new Notification("Review pending", { body: `${what} from ${change.server}`, tag: change.review });
    told.addEventListener("click", () => {
      focus();
      location.assign(`/reviews/${encodeURIComponent(change.review)}`);
    });
  } catch {
    // some mobile browsers have no notifications from pages
  }
}

const bell = document.getElementById("notify");

function ring() {
  const on = optedIn();
  bell.hidden = false;
  bell.disabled = Notification.permission === "denied";
  bell.setAttribute("aria-pressed", String(on));
  bell.textContent = bell.disabled ? "Notifications are blocked in this browser" : on ? "Notifications: on" : "Notifications: off";
}

if (bell && "Notification" in window && window.isSecureContext) {
  bell.addEventListener("click", async () => {
    const wanted = !optedIn();
    if (wanted && Notification.permission === "default") await Notification.requestPermission();
    try {
      if (wanted) localStorage.setItem(OPTED_IN, "yes");
      else localStorage.removeItem(OPTED_IN);
    } catch {
      // without storage there is nothing to remember
    }
    ring();
  });
  ring();
}

// Enables the buttons that fit the input. The server checks in the preview and again at submission: it refuses a button that would drop
// an input. Until the preview arrives, "typing" disables the button that approves the request as it is.
function follow(form, touched) {
  if (review?.dataset.state !== "pending") return;
  for (const button of form.querySelectorAll("button[data-fits]")) {
    const fits = button.dataset.fits === touched;
    button.disabled = touched === "typing" ? button.dataset.fits === "untouched" : !fits;
    button.classList.toggle("approve", fits);
    button.classList.toggle("secondary", !fits);
    if (button.closest(".quick") && touched !== "typing") button.hidden = !fits;
  }
}

for (const form of document.querySelectorAll('form[data-live="changes"]')) {
  let turn = 0;
  const show = later(async () => {
    const mine = ++turn;
    const body = new URLSearchParams(new FormData(form));
    body.set("do", "preview");
    const page = await load(form.action, { method: "POST", body });
    const fresh = mine === turn && swap("changes", page);
    if (fresh) follow(form, fresh.dataset.touched);
  }, 400);
  const typing = (event) => {
    if (event.target.name === "reason" || event.target.name === "tell_server") return;
    turn++; // ignore the preview of an earlier input
    follow(form, "typing");
    show();
  };
  form.addEventListener("input", typing);
  form.addEventListener("change", typing);
  follow(form, form.dataset.touched);
  // a browser may restore earlier input
  addEventListener("pageshow", () => {
    const differs = (field) => (field.options ? ![...field.options].every((each) => each.selected === each.defaultSelected) : field.value !== field.defaultValue);
    const changed = [...form.elements].find((field) => field.name?.startsWith("edit.") || field.name?.startsWith("answer.") ? differs(field) : false);
    if (changed) typing({ target: changed });
  });
}

// Ignores a second submission while the first is in flight.
for (const form of document.querySelectorAll(".review form")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "yes";
    setTimeout(() => delete form.dataset.sent, 4000);
  });
}

// Opens a folded form when a link leads to it.
function unfold() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  const folded = target.closest("details") ?? target.querySelector("details");
  if (folded) folded.open = true;
  (target.matches("details") ? target.querySelector("summary") : target).focus();
}
addEventListener("hashchange", unfold);
unfold();

document.getElementById("problems")?.focus();
