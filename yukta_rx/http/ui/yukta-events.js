/**
 * Follows an event stream of yukta_rx: sends the key, resumes by id, comes back by itself.
 *
 *   import { followEvents } from "/ui/yukta-events.js";
 *   const events = followEvents("/api/events/stream?type=node.*", {
 *     key, // an API key; leave it out where a cookie or nothing is needed
 *     on: { "node.status": (event) => ..., "stream.reset": () => refetch(), "*": (event) => ... },
 *   });
 *   events.close();
 *
 * An event is {type, id, data}, data parsed. Of the stream itself tell "stream.hello", "stream.gap"
 * (events were lost), "stream.reset" (fetch your snapshots again), "stream.closing" and
 * "stream.standby" (data.leader has the server that leads). A handler that throws ends the
 * following, and the event counts as not seen. `onState` is told "open", "waiting" and "closed";
 * `onError` what went wrong: {status, problem, final} or {error, final}.
 */
export function followEvents(url, options = {}) {
  const { key, on = {}, onState = () => {}, onError = () => {}, maxDelayMs = 30_000 } = options;
  const { silenceMs = 45_000, pace = (ms) => ms, fetch = globalThis.fetch } = options;
  let lastEventId = options.lastEventId ?? "";
  let retryMs = 2000;
  let failures = 0;
  let closed = false;
  let inHandler = false;
  let attempt = null; // aborts the request under way
  let wake = () => {}; // ends the wait between two requests

  function dispatch(event) {
    inHandler = true;
    for (const handler of [on[event.type], on["*"]]) handler?.(event);
    inHandler = false;
    lastEventId = event.id;
  }

  async function read(response, touch) {
    const parser = new EventParser(lastEventId);
    const decoder = new TextDecoder();
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || closed) return;
      touch();
      for (const event of parser.feed(decoder.decode(value, { stream: true }))) {
        failures = 0;
        if (closed) return;
        dispatch({ ...event, data: parsed(event.data) });
      }
      retryMs = parser.retryMs ?? retryMs;
    }
  }

  async function once() {
    attempt = new AbortController();
    let silence;
    // A peer that vanished says nothing; a server that lives sends a comment now and then.
    const touch = () => {
      clearTimeout(silence);
      silence = setTimeout(() => attempt.abort(new Error("the stream fell silent")), silenceMs);
    };
    touch();
    try {
      const headers = { Accept: "text/event-stream" };
      if (key) headers.Authorization = `Bearer ${key}`;
      if (lastEventId) headers["Last-Event-ID"] = lastEventId;
      const response = await fetch(url, { headers, signal: attempt.signal, cache: "no-store" });
      if (response.ok) {
        onState("open");
        await read(response, touch);
        return 0;
      }
      failures += 1;
      const problem = await response.json().catch(() => null);
      const final = response.status < 500;
      onError({ status: response.status, problem, final });
      if (final) closed = true;
      return 1000 * (Number(response.headers.get("Retry-After")) || 0);
    } finally {
      clearTimeout(silence);
      attempt.abort();
    }
  }

  async function follow() {
    while (!closed) {
      let atLeast = 0;
      try {
        atLeast = await once();
      } catch (error) {
        if (closed) break;
        failures += 1;
        onError({ error, final: inHandler });
        if (inHandler) closed = true;
      }
      if (closed) break;
      onState("waiting");
      // Twice as long after each failure, and never all clients at once.
      const longest = Math.min(maxDelayMs, retryMs * 2 ** Math.max(0, failures - 1));
      const delay = Math.max(atLeast, longest / 2) + (Math.random() * longest) / 2;
      await new Promise((go) => {
        const timer = setTimeout(go, pace(delay));
        wake = () => (clearTimeout(timer), go());
      });
    }
    closed = true;
    onState("closed");
  }

  follow();
  return {
    get lastEventId() {
      return lastEventId;
    },
    close() {
      closed = true;
      attempt?.abort();
      wake();
    },
  };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** The event stream format of the HTML standard; it does not matter where its text is cut. */
export class EventParser {
  constructor(id = "") {
    this.id = id;
    this.retryMs = undefined;
    this.rest = "";
    this.afterCr = false;
    this.begin();
  }

  begin() {
    this.type = "";
    this.data = [];
  }

  feed(text) {
    if (!text) return [];
    if (this.afterCr && text.startsWith("\n")) text = text.slice(1);
    this.afterCr = text.endsWith("\r");
    const lines = (this.rest + text).split(/\r\n|\r|\n/);
    this.rest = lines.pop();
    return lines.map((line) => this.line(line)).filter(Boolean);
  }

  line(line) {
    if (!line) {
      const { type, data, id } = this;
      this.begin();
      return data.length ? { type: type || "message", id, data: data.join("\n") } : null;
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.data.push(value);
    else if (name === "event") this.type = value;
    else if (name === "id" && !value.includes("\0")) this.id = value;
    else if (name === "retry" && /^[0-9]+$/.test(value)) this.retryMs = Number(value);
    return null;
  }
}
