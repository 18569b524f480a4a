// What htmx does not do: times that stay true and are those of the browser's zone, the place of a reader, and a word about a server that is gone.

(() => {
  const units = [["d", 86400, 2], ["h", 3600, 1], ["min", 60, 1]];

  function ago(then) {
    const seconds = (Date.now() - then) / 1000;
    const length = Math.abs(seconds);
    if (length < 2) return "now";
    const [name, unit] = units.find(([, unit, least]) => length >= unit * least) ?? ["s", 1];
    const text = `${Math.floor(length / unit)} ${name}`;
    return seconds > 0 ? `${text} ago` : `in ${text}`;
  }

  const date = new Intl.DateTimeFormat("sv", { dateStyle: "short" });  // 2026-11-25
  const time = new Intl.DateTimeFormat("en", {
    hourCycle: "h23", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
  });

  function clock(then) {
    const [day, today] = [date.format(then), date.format(Date.now())];
    return day === today ? time.format(then) : `${day} ${time.format(then)}`;
  }

  function refresh() {
    const title = document.querySelector("[data-title]")?.dataset.title;
    if (title && document.title !== title) document.title = title;
    for (const each of document.querySelectorAll("time[data-ago], time[data-clock]")) {
      const text = ("ago" in each.dataset ? ago : clock)(Date.parse(each.dateTime));
      if (each.textContent !== text) each.textContent = text;
    }
  }

  // A person who has scrolled up in a streamed text keeps the place while the text grows, and loses its beginning.
  // Browsers that do that by themselves do it only for text in the usual direction. Who is at the end of what grows
  // there stays at its end.
  let places = [];
  let atEnd = false;

  function note() {
    const page = document.documentElement;
    atEnd = document.querySelector("[data-follows]") && page.scrollHeight - scrollY - innerHeight < 60;
    places = [...document.querySelectorAll(".stream .text")].filter((box) => box.scrollTop < -1).map((box) => {
      const top = box.getBoundingClientRect().top;
      const found = [...box.querySelectorAll("[id]")].find((each) => each.getBoundingClientRect().bottom > top);
      return [box, found, found && found.getBoundingClientRect().top - top];
    });
  }

  function keep() {
    for (const [box, found, before] of places) {
      if (!found?.isConnected) continue;
      box.scrollTop += found.getBoundingClientRect().top - box.getBoundingClientRect().top - before;
    }
    if (atEnd) scrollTo(0, document.documentElement.scrollHeight);
  }

  function offline(isGone, status) {
    for (const [id, isSo] of [["offline", isGone && status !== 503], ["crowded", isGone && status === 503]]) {
      const said = document.getElementById(id);
      if (said && said.hidden === isSo) said.hidden = !isSo;
    }
  }

  // A tab that was opened in the background has a stream, too, until it is told that it is hidden. A browser has six
  // connections to a server, and the seventh tab would wait for one of the others to end.
  function rest() {
    if (document.hidden) document.dispatchEvent(new Event("visibilitychange"));
  }

  // The newest message is in view, as after a link to `#newest`.
  if (!location.hash && !/[?&](after|q)=/.test(location.search)) document.querySelector("[data-newest]")?.scrollIntoView();

  // The list: one box ticks all of a page, how many are ticked is said beside the buttons, and two can be compared.
  function chosen() {
    const said = document.querySelector("[data-chosen]");
    if (!said) return;
    const boxes = [...document.querySelectorAll('input[name="run"]')];
    const ticked = boxes.filter((box) => box.checked).length;
    said.textContent = ticked ? `${ticked} chosen` : "";
    const two = document.querySelector("[data-two]");
    if (two) two.disabled = ticked !== 2;
    const all = document.querySelector("[data-all]");
    if (all) [all.checked, all.indeterminate] = [ticked && ticked === boxes.length, ticked && ticked < boxes.length];
  }

  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-all]")) {
      for (const box of document.querySelectorAll('input[name="run"]')) box.checked = event.target.checked;
    }
    if (event.target.matches('[data-all], input[name="run"]')) chosen();
  });

  // A part of a value that was opened in a message stays when later messages come.
  document.addEventListener("htmx:before:request", (event) => {
    event.target.closest?.(".messages > li")?.setAttribute("hx-morph-skip", "");
  });

  refresh();
  chosen();
  setInterval(refresh, 5000);
  document.addEventListener("htmx:before:swap", note);
  document.addEventListener("htmx:after:swap", () => { refresh(); keep(); chosen(); });
  document.addEventListener("htmx:sse:after:message", rest);
  document.addEventListener("htmx:sse:error", (event) => offline(true, event.detail?.status));
  document.addEventListener("htmx:sse:after:connection", () => offline(false));
  document.addEventListener("htmx:error", (event) => { if (event.detail?.error instanceof TypeError) offline(true); });
  document.addEventListener("htmx:after:request", () => offline(false));
  document.addEventListener("htmx:response:error", (event) => {
    if (event.target.hasAttribute?.("hx-sse:connect")) offline(true, event.detail?.ctx?.response?.status);
  });
})();
