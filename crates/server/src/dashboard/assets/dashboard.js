// Live updates. When something happened, the page asks for itself again and puts the new main part in the place of the old one.
// Without this script every page works: it shows how things stood when it was made.
"use strict";

(() => {
  const state = document.getElementById("live");
  let offset = 0;
  let madeAt = 0;
  let timer = null;
  let isAsking = false;
  let isPending = false;
  let hasChanged = false;
  let lastAt = 0;

  const main = () => document.getElementById("main");

  function begin(age) {
    const now = Number(main().dataset.now);
    offset = now > 0 ? now + age - Date.now() : 0;
    madeAt = performance.now() - age;
    offerToCopy();
  }

  function say(name, text) {
    if (state.dataset.state !== name) {
      state.dataset.state = name;
      state.textContent = text;
    }
  }

  // What a person types, has opened to act on or has just copied stays: the page waits until that is over.
  function isBusy() {
    const focused = document.activeElement;
    const types = focused && main().contains(focused) && focused.matches("input, button[name], select, textarea");
    return types || main().querySelector("details.act[open], .copied.done") !== null || String(getSelection()) !== "";
  }

  async function refresh() {
    timer = null;
    if (document.hidden || isAsking || isBusy()) {
      isPending = true;
      return;
    }
    isAsking = true;
    isPending = false;
    const wasChanged = hasChanged;
    hasChanged = false;
    lastAt = performance.now();
    try {
      const response = await fetch(location.href, { headers: { accept: "text/html", "fencehold-again": "1" }, redirect: "manual" });
      if (response.type === "opaqueredirect") {
        location.reload();
        return;
      }
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("main");
      if (response.ok && fresh && !isBusy()) {
        swap(fresh, Number(response.headers.get("fencehold-age-ms")));
      }
      // It was made before what happened. The next one is made after it.
      const nextIn = Number(response.headers.get("fencehold-next-in-ms"));
      if (wasChanged && nextIn > 0) later(nextIn);
    } catch {
      say("lost", "not connected: this is how things stood");
    } finally {
      isAsking = false;
    }
  }

  function swap(fresh, age) {
    const old = main();
    for (const open of old.querySelectorAll("details[open][id]")) {
      const same = fresh.querySelector("#" + CSS.escape(open.id));
      if (same) same.open = true;
    }
    const scrolls = [...old.querySelectorAll(".scroll, .timeline")].map((element) => element.scrollLeft);
    const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    old.replaceWith(document.adoptNode(fresh));
    [...fresh.querySelectorAll(".scroll, .timeline")].forEach((element, nth) => { element.scrollLeft = scrolls[nth] || 0; });
    if (focused !== null) {
      [...fresh.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
    }
    begin(age);
  }

  function soon() {
    hasChanged = true;
    later(100);
  }

  function later(ms) {
    if (timer === null) {
      timer = setTimeout(refresh, Math.max(ms, Number(main().dataset.refreshMs) - (performance.now() - lastAt)));
    }
  }

  function watch() {
    const url = main().dataset.live;
    if (!url) return;
    const events = new EventSource(url);
    events.addEventListener("open", () => {
      say("live", "live");
      // What happened before the stream began, or while it was gone.
      soon();
    });
    events.addEventListener("changed", soon);
    events.addEventListener("error", () => {
      say("lost", "not connected: this is how things stood");
      // If the session has ended, the page leads to the log-in.
      soon();
      if (events.readyState === EventSource.CLOSED) {
        setTimeout(watch, 5000);
      }
    });
  }

  function relative(at, now) {
    const ms = Math.abs(now - at);
    const seconds = Math.floor(ms / 1000);
    if (ms < 1000) return "now";
    const amount = seconds < 60 ? seconds + " s"
      : seconds < 3600 ? Math.floor(seconds / 60) + " min"
      : seconds < 172800 ? Math.floor(seconds / 3600) + " h"
      : Math.floor(seconds / 86400) + " d";
    return at > now ? "in " + amount : amount + " ago";
  }

  function duration(ms) {
    const seconds = Math.floor(ms / 1000);
    if (seconds < 60) return seconds + " s";
    if (seconds < 3600) return Math.floor(seconds / 60) + " min" + (seconds % 60 ? " " + (seconds % 60) + " s" : "");
    if (seconds < 86400) {
      const minutes = Math.floor(seconds / 60) % 60;
      return Math.floor(seconds / 3600) + " h" + (minutes ? " " + minutes + " min" : "");
    }
    const hours = Math.floor(seconds / 3600) % 24;
    return Math.floor(seconds / 86400) + " d" + (hours ? " " + hours + " h" : "");
  }

  function write(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function tick() {
    const now = Date.now() + offset;
    for (const time of document.querySelectorAll("time[datetime]")) {
      write(time, relative(Date.parse(time.dateTime), now));
    }
    const passed = performance.now() - madeAt;
    for (const left of document.querySelectorAll("[data-left-ms]")) {
      write(left, duration(Math.max(0, Number(left.dataset.leftMs) - passed)));
    }
    if (isPending && !document.hidden && !isBusy()) soon();
  }

  // Browsers offer their clipboard to pages over TLS alone; a selection can be copied from every page.
  async function copy(code, button) {
    let isCopied = false;
    try {
      await navigator.clipboard.writeText(code.textContent);
      isCopied = true;
    } catch {
      getSelection().selectAllChildren(code);
      isCopied = document.execCommand("copy");
      getSelection().removeAllRanges();
    }
    button.textContent = isCopied ? "Copied" : "Select it and copy";
    button.classList.add("done");
    setTimeout(() => {
      button.textContent = "Copy";
      button.classList.remove("done");
    }, 2000);
  }

  function offerToCopy() {
    for (const code of main().querySelectorAll("code.copy")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copied";
      button.textContent = "Copy";
      button.setAttribute("aria-label", "Copy " + code.textContent);
      button.addEventListener("click", () => copy(code, button));
      code.after(button);
    }
  }

  // A change of all that match goes on step by step, for as long as its page is open.
  async function goOn() {
    for (let form = main().querySelector("form[data-continue]"); form !== null;) {
      const response = await fetch(form.getAttribute("action"), { method: "POST", body: new URLSearchParams(new FormData(form)), redirect: "error" });
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("main");
      if (fresh === null) throw new Error("no page");
      swap(fresh, 0);
      form = fresh.querySelector("form[data-continue]");
    }
  }

  begin(0);
  goOn().catch(() => say("lost", "not connected: go on by hand"));
  watch();
  setInterval(tick, 1000);
})();
