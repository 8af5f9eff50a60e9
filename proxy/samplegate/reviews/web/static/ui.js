// The server's own UI on the page of a review: a frame, and the bridge to the app in it. Everything from the frame is hostile. The app
// proposes: what it submits fills the gate's form, and only a person's press of a button of the gate sends. Loaded after page.js.
"use strict";

{
const LIMITS = { messages: 2000, perSecond: 100, characters: 128 * 1024, values: 20000, depth: 32, submissions: 30, heights: 30, thefts: 2 };
const START = 15000; // ms in which the app must get ready
const TEARDOWN = 300; // ms in which an app may clean up
const CALM = 1000; // ms in which no button decides after the app has changed what a person was about to press
const OWN = 200; // ms after a person's input on the page in which a scroll counts as theirs
const REACH = 400; // ms between a press in the frame and the page's knowledge of the pointer there
const ACTIVE = 5000; // ms for which browsers remember a press
const HEIGHT = [80, 800]; // CSS pixels
const TOLD = 3; // problems listed beside the UI; the form shows all of them
const ISOLATES = 152; // Chromium with Connection-Allowlist. Without it, the app could send what is typed into it to somewhere else
const PROTOCOL = "2026-01-26"; // of MCP Apps
const ACTIONS = { accept: "Accept and send", decline: "Decline", cancel: "Dismiss" };

const page = document.querySelector("[data-review]");
const decision = document.getElementById("decision");
const dark = matchMedia("(prefers-color-scheme: dark)");
const theme = () => (dark.matches ? "dark" : "light");
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isId = (value) => (typeof value === "string" && value.length <= 200) || Number.isSafeInteger(value);

class TooMuch extends Error {}

// A copy of a message as JSON values. Undefined members are left out, as JSON does. Throws TooMuch beyond the limits, which cycles
// exceed too, and TypeError for other objects (maps, buffers, ports).
function copied(value, room, depth = 0) {
  room.values -= 1;
  if (typeof value === "string") room.characters -= value.length;
  if (depth > LIMITS.depth || room.values < 0 || room.characters < 0) throw new TooMuch();
  if (value === null || typeof value === "string" || typeof value === "boolean" || Number.isFinite(value)) return value;
  if (Array.isArray(value)) {
    if (value.length > room.values) throw new TooMuch();
    return Array.from(value, (item) => copied(item === undefined ? null : item, room, depth + 1));
  }
  if (typeof value !== "object" || Object.getPrototypeOf(value) !== Object.prototype) throw new TypeError("not JSON");
  const members = [];
  for (const name of Object.keys(value)) {
    if (value[name] === undefined) continue;
    room.characters -= name.length;
    members.push([name, copied(value[name], room, depth + 1)]);
  }
  return Object.fromEntries(members);
}

// While an app has just changed the form or the page's layout, no press of a button decides: it may have been meant for what was there
// before. Somebody who goes on typing does not press a button that got the focus meanwhile.
const calm = {
  until: 0,
  wait() {
    this.until = performance.now() + CALM;
    decision.classList.add("settling");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => decision.classList.remove("settling"), CALM);
  },
  decides(button) {
    return (button?.name === "do" && button.value !== "preview") || button?.name === "use"; // "use": what the app submitted
  },
  guards(button) {
    return this.decides(button) && performance.now() < this.until;
  },
  // An app can scroll the page at any time (scrollIntoView, focus), and so put another button under the pointer.
  watch(signal) {
    const decide = document.getElementById("decide");
    let top, own = -Infinity;
    for (const input of ["wheel", "touchmove", "keydown"]) {
      document.addEventListener(input, () => { own = performance.now(); }, { signal, capture: true, passive: true });
    }
    document.addEventListener("scroll", () => {
      const before = top;
      top = decide.getBoundingClientRect().top;
      if (top !== before && performance.now() - own > OWN) this.wait();
    }, { signal, passive: true });
    visualViewport?.addEventListener("resize", () => this.wait(), { signal }); // an app can close the keyboard of a phone over the buttons
  },
};
decision?.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  // the first press of a double click may have been in the frame, or in a list of its app that was over the page
  if (!calm.guards(button) && !(calm.decides(button) && event.detail > 1)) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}, true);
decision?.addEventListener("keydown", (event) => {
  if (event.key === "Tab" || event.key === "Escape" || !calm.guards(event.target.closest("button"))) return;
  event.preventDefault();
  calm.wait();
}, true);

// A press in the frame activates the page, too, and an app cannot fake one. The page gets no event for it, unlike for a press outside the frame.
const person = {
  pressed: -Infinity, // the time of the last press outside the frame
  watch() {
    for (const press of ["pointerdown", "pointerup", "touchend", "keydown"]) {
      document.addEventListener(press, () => { this.pressed = performance.now(); }, { capture: true, passive: true });
    }
  },
  usesApp() {
    return Boolean(navigator.userActivation?.isActive) && performance.now() - this.pressed > ACTIVE;
  },
};

// The gate's form beside the UI, with what the app submits.
const form = {
  edited: decision?.dataset.typed === "yes", // by hand, since it was last filled, or before a check reloaded the page
  filled: null, // the HTML of the app's last values, if they can be sent: a person may have read them. "": the form's own values can be sent
  watch() {
    const own = document.getElementById("form");
    if (own.querySelector(".field") && !own.querySelector(":invalid")) this.filled = "";
    decision.addEventListener("input", (event) => {
      if (event.target.closest("#form")) this.edited = true;
    });
  },
  fill(html, sendable) {
    swap("form", new DOMParser().parseFromString(html, "text/html"));
    this.edited = false;
    this.filled = sendable ? html : null;
    document.getElementById("form").classList.add("filled");
  },
};

// Marks the button that fits what the app submitted (with "none", no button).
function preselect(action) {
  for (const button of decision.querySelectorAll("button[name=do]")) button.classList.toggle("proposed", button.value === action);
}

class Bridge {
  constructor(section, described) {
    this.section = section;
    this.place = section.querySelector(".place");
    this.described = described;
    this.received = [];
    this.count = 0;
    this.loads = 0;
    this.heights = 0;
    this.thefts = 0;
    this.submissions = 0;
    this.number = 0;
    this.phase = "starting"; // starting, greeted (SEP-3118: ui/initialize was answered), ready, closed
    this.frame = Object.assign(document.createElement("iframe"), { title: `UI from ${section.dataset.server}`, referrerPolicy: "no-referrer" });
    this.frame.setAttribute("sandbox", "allow-scripts allow-forms"); // forms: else there are no submit events
    if (section.dataset.origin) this.frame.setAttribute("credentialless", ""); // a page elsewhere does not learn who opens it
    this.frame.allow = document.featurePolicy?.allowedFeatures().map((name) => `${name} 'none'`).join("; ") ?? "";
    this.end = new AbortController();
    const { signal } = this.end;
    addEventListener("message", (event) => this.receive(event), { signal });
    this.frame.addEventListener("load", () => ++this.loads > 1 && this.close("The UI left its page, so it was closed. Use the form below."));
    dark.addEventListener("change", () => this.retheme(), { signal });
    document.addEventListener("review-ended", () => this.leave("The review has ended."), { signal });
    this.keepFocus(signal);
    calm.watch(signal);
    calm.wait(); // the frame moves what is below it
    this.timer = setTimeout(() => this.close("The UI did not start in time. Use the form below."), START);
    this.frame.src = described.src;
    this.place.append(this.frame);
    this.closer = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: "Close the UI" });
    this.closer.addEventListener("click", () => this.leave("The UI is closed. Use the form below."));
    this.place.before(this.closer);
    document.getElementById("seen-ui").value = described.sha256; // from now on, a person may have seen it
  }

  // An app can take the focus at any time, and no attribute of the frame prevents it (`inert` does not reach its process). If it takes the
  // focus from a field of the page, and nobody has reached for the frame with the pointer or the Tab key, the field gets it back.
  keepFocus(signal) {
    if (matchMedia("(hover: none)").matches) return;
    let reached = -Infinity;
    const reach = () => { reached = performance.now(); };
    document.addEventListener("keydown", (event) => { if (event.key === "Tab") reach(); }, { signal, capture: true });
    for (const moved of ["pointerover", "pointerout"]) this.frame.addEventListener(moved, reach, { signal });
    document.addEventListener("focusout", ({ target: field }) => {
      const left = performance.now();
      setTimeout(() => { // the page hears of a pointer's way into the frame only after the frame does
        const taken = document.activeElement === this.frame && field.matches?.("input, textarea, select");
        if (!taken || this.frame.matches(":hover") || reached > left - REACH) return;
        field.focus({ preventScroll: true });
        if (++this.thefts > LIMITS.thefts) this.close("The UI took the focus while you were in a field, so it was closed. Use the form below.");
      }, REACH);
    }, { signal });
  }

  receive(event) {
    if (event.source !== this.frame.contentWindow || event.origin !== "null" || this.phase === "closed") return;
    const now = performance.now();
    this.received = this.received.filter((at) => now - at < 1000);
    this.received.push(now);
    if (++this.count > LIMITS.messages || this.received.length > LIMITS.perSecond) return this.close("The UI sent too many messages, so it was closed. Use the form below.");
    let message;
    try {
      message = copied(event.data, { values: LIMITS.values, characters: LIMITS.characters });
    } catch (problem) {
      if (problem instanceof TooMuch) this.close("The UI sent too large a message, so it was closed. Use the form below.");
      return;
    }
    if (!isObject(message)) return;
    if (this.described.dialect === "rich") this.rich(message);
    else if (message.jsonrpc === "2.0") this.rpc(message);
  }

  send(message) {
    this.frame.contentWindow?.postMessage(message, "*"); // an opaque origin has no other name. Nothing secret is sent
  }

  started() {
    clearTimeout(this.timer);
    this.phase = "ready";
  }

  // -- SEP-3118, over the messages of MCP Apps

  rpc({ id, method, params, result, error }) {
    if (typeof method === "string" && id === undefined) this.notified(method, params);
    else if (typeof method === "string" && isId(id)) this.send({ jsonrpc: "2.0", id, ...this.answer(method, params) });
    else if (method === undefined && id !== undefined && id === this.asked) { // also again: a person may choose anew in the app
      if (error === undefined) this.submitted(result);
      else this.close("The UI could not answer the form. Use the form below.");
    }
    if (this.unable) this.close("The UI cannot answer forms. Use the form below.");
  }

  answer(method, params) {
    switch (method) {
      case "ui/initialize":
        if (this.phase !== "starting") return { error: { code: -32600, message: "Already initialized" } };
        this.phase = "greeted";
        this.unable = !isObject(params?.appCapabilities?.elicitation);
        return { result: {
          protocolVersion: PROTOCOL,
          hostInfo: { name: "samplegate", version: this.described.version },
          hostCapabilities: { elicitation: {} },
          hostContext: {
            theme: theme(), displayMode: "inline", availableDisplayModes: ["inline"], platform: "web", locale: navigator.language,
            timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
            containerDimensions: { width: this.place.clientWidth, maxHeight: HEIGHT[1] },
          },
        } };
      case "ping":
        return { result: {} };
      case "ui/request-display-mode":
        return { result: { mode: "inline" } };
      case "ui/open-link":
      case "ui/download-file":
      case "ui/message":
        return { result: { isError: true } };
      default:
        return { error: { code: -32601, message: "Method not found" } };
    }
  }

  notified(method, params) {
    if (method === "ui/notifications/initialized" && this.phase === "greeted") {
      this.started();
      this.ask();
    } else if (method === "ui/notifications/size-changed") this.resize(params?.height);
  }

  ask() {
    this.asked = `samplegate-${++this.number}`;
    this.send({ jsonrpc: "2.0", id: this.asked, method: "elicitation/create", params: this.described.params });
  }

  retheme() {
    if (this.phase !== "ready" || this.described.dialect === "rich") return;
    this.send({ jsonrpc: "2.0", method: "ui/notifications/host-context-changed", params: { theme: theme() } });
  }

  // -- RICH

  rich(message) {
    if (message.type === "ui-lifecycle-iframe-ready") {
      this.started();
      this.tellContext();
    } else if (message.type === "ui-size-change") this.resize(message.payload?.height);
    else if (message.jsonrpc === "2.0" && message.method === "ui/submit-elicitation" && this.phase === "ready") this.submitted(message.params);
  }

  tellContext(error) {
    const { params, context } = this.described;
    const shown = context === null ? { theme: theme() } : isObject(context) ? { theme: theme(), ...context } : context;
    const failed = error === undefined ? {} : { error };
    this.send({
      jsonrpc: "2.0", method: "ui/notifications/elicitation-context",
      params: { message: params.message, schema: params.requestedSchema, context: isObject(shown) ? { ...shown, ...failed } : shown, ...failed },
    });
  }

  // -- both

  resize(height) {
    if (!Number.isFinite(height) || ++this.heights > LIMITS.heights) return;
    const wanted = `${Math.round(Math.min(Math.max(height, HEIGHT[0]), HEIGHT[1]))}px`;
    if (wanted === this.frame.style.height) return;
    this.frame.style.height = wanted;
    calm.wait();
  }

  async submitted(given) {
    if (++this.submissions > LIMITS.submissions) return this.close("The UI submitted too often, so it was closed. Use the form below.");
    if (this.checking) return;
    this.checking = true;
    const uses = person.usesApp();
    let found;
    try {
      found = await this.check(isObject(given) ? given : {});
    } finally {
      this.checking = false;
    }
    if (this.phase === "closed" || found === undefined) return;
    const action = ACTIONS[given?.action] ? given.action : "accept";
    if (found.problems.length) this.refuse(found.problems);
    if (action === "accept" && found.form !== null) this.propose(found, uses);
    else if (!found.problems.length) this.decline(action);
  }

  async check({ action, content }) {
    const token = decision.elements.form_token.value;
    let answer;
    try {
      answer = await fetch(`${page.dataset.at}/ui/proposal`, {
        method: "POST", credentials: "same-origin", redirect: "error", headers: { "content-type": "application/json" },
        body: JSON.stringify({ form_token: token, ui: this.described.sha256, action, content }),
      });
    } catch {
      return void this.tell("What the UI submitted could not be checked. Try again, or use the form below.");
    }
    if (answer.ok) return answer.json();
    this.close(answer.status === 409 ? "The review has ended." : "What the UI submitted could not be checked. Use the form below.");
    return undefined;
  }

  // Sends the problems back into the app, which asks again.
  refuse(problems) {
    if (this.described.dialect === "rich") this.tellContext(problems.join(", "));
    else this.ask();
    const more = problems.length > TOLD ? ` And ${problems.length - TOLD} more.` : "";
    this.tell(`The UI submitted values that do not fit the form. ${problems.slice(0, TOLD).map((each) => `${each}.`).join(" ")}${more}`);
  }

  // The form's own values are replaced at once after a press in the app. Values from the app that can be sent stay until a press of the gate's button.
  propose(found, uses) {
    if (found.form === form.filled && !form.edited) return;
    const inForm = document.getElementById("form").contains(document.activeElement);
    const stays = form.filled !== null && !(form.filled === "" && uses);
    if (form.edited || stays || inForm) return this.offer(found);
    this.fill(found);
  }

  fill({ form: html, problems, sendable }) {
    calm.wait();
    form.fill(html, sendable);
    preselect(problems.length ? "none" : "accept");
    if (problems.length) return;
    this.tell(`The UI filled in the form below. Check the values, then choose "${ACTIONS.accept}". Nothing was sent yet.`);
    if (document.activeElement === this.frame) document.getElementById("form").focus();
  }

  // A person has typed into the form, or may have read the values in it: the app's new ones replace them only if they choose so.
  offer(found) {
    if (!found.problems.length) this.tell("The UI submitted new values. The form below still has the previous values.");
    const use = Object.assign(document.createElement("button"), { type: "button", name: "use", className: "secondary", textContent: "Use the new values" });
    use.addEventListener("click", () => {
      use.remove();
      this.fill(found);
      document.getElementById("form").focus();
    });
    this.section.querySelector(".told").after(use);
    this.section.querySelectorAll(".told ~ button").forEach((each) => each !== use && each.remove());
  }

  decline(action) {
    preselect(action);
    this.tell(`The UI suggests "${ACTIONS[action]}". Nothing was sent yet: choose a button to decide.`);
    // never the button: the next Enter or Space may be meant for the app, or for scrolling
    if (document.activeElement === this.frame || document.activeElement === document.body) document.getElementById("decide").focus();
  }

  tell(text) {
    calm.wait(); // the text moves what is below it
    this.section.querySelector(".told").textContent = text;
  }

  // Ends an app that did nothing wrong: it gets a moment to clean up (ui/resource-teardown of MCP Apps).
  leave(why) {
    const told = this.phase === "ready" && this.described.dialect !== "rich";
    if (told) this.send({ jsonrpc: "2.0", id: `samplegate-${++this.number}`, method: "ui/resource-teardown", params: {} });
    this.close(why, told ? TEARDOWN : 0);
  }

  close(why, wait = 0) {
    if (this.phase === "closed") return;
    this.phase = "closed";
    clearTimeout(this.timer);
    this.end.abort();
    this.section.querySelectorAll(".told ~ button").forEach((each) => each.remove());
    this.frame.hidden = true;
    if (wait) setTimeout(() => this.frame.remove(), wait);
    else this.frame.remove();
    this.closer.remove();
    this.tell(why);
  }
}

async function show(section) {
  const told = (text) => { section.querySelector(".told").textContent = text; };
  try {
    const answer = await fetch(`${page.dataset.at}/ui/description`, { credentials: "same-origin", redirect: "error", cache: "no-store" });
    if (!answer.ok) return told(`The UI cannot be shown: ${(await answer.json()).detail}. Use the form below.`); // an answer that is not JSON ends in the catch
    new Bridge(section, await answer.json());
  } catch {
    told("The UI could not be loaded. Use the form below.");
  }
}

// If the frame's network is not isolated, a person decides whether to show the UI.
function begin() {
  const section = document.querySelector("#ui[data-state=ready]");
  if (!section || section.dataset.begun || page.dataset.state !== "pending") return;
  section.dataset.begun = "yes";
  section.querySelector(".told").textContent = "";
  const version = Number(/Chrome\/(\d+)/.exec(navigator.userAgent)?.[1] ?? 0);
  const { origin } = section.dataset;
  if (version >= ISOLATES && !origin) return void show(section);
  const button = Object.assign(document.createElement("button"), { type: "button", className: "secondary", textContent: "Show the UI" });
  section.querySelector(".told").textContent = origin
    ? `If you show the UI, ${origin} gets the form's text, what you enter in the UI, and your IP address.`
    : "This browser cannot keep the UI from sending what you enter in it to other places.";
  section.querySelector(".told").after(button); // below its warning
  button.addEventListener("click", () => {
    button.remove();
    section.querySelector(".told").textContent = "";
    show(section);
  });
}

if (page && decision && document.getElementById("form")) {
  form.watch();
  person.watch();
  document.addEventListener("ui-changed", () => {
    calm.wait();
    begin();
  });
  begin();
}
}
