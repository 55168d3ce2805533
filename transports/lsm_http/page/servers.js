// The servers that this page watches: one stream of states each, opened again whenever it breaks.

const RETRY_MS = [500, 1000, 2000, 5000];
const SILENCE_MS = 90_000; // a server pings every 30 s

export class Server {
  constructor(url, onChange) {
    this.url = url;
    this.onChange = onChange;
    this.state = null; // the last document of /lsm/state
    this.stateAt = 0; // when it came, by performance.now()
    this.phase = "connecting"; // connecting | live | gone | locked
    this.tries = 0;
  }

  get key() {
    return sessionStorage.getItem(`key ${this.url}`) ?? "";
  }

  set key(value) {
    sessionStorage.setItem(`key ${this.url}`, value);
    this.wake?.();
  }

  async fetch(path, options = {}) {
    const headers = { ...(options.body ? { "Content-Type": "application/json" } : {}), ...(this.key ? { Authorization: `Bearer ${this.key}` } : {}) };
    return fetch(this.url + path, { ...options, headers, cache: "no-store" });
  }

  async watch() {
    for (;;) {
      try {
        await this.readStates();
        this.move("gone");
      } catch {
        this.move(this.phase === "locked" ? "locked" : "gone");
      }
      await this.pause(RETRY_MS[Math.min(this.tries++, RETRY_MS.length - 1)]);
    }
  }

  async readStates() {
    const aborter = new AbortController();
    let silence = setTimeout(() => aborter.abort(), SILENCE_MS);
    try {
      const response = await this.fetch("lsm/events", { signal: aborter.signal });
      this.phase = response.status === 401 ? "locked" : this.phase === "locked" ? "connecting" : this.phase;
      if (!response.ok) throw new Error(response.statusText);
      for await (const data of events(response.body, () => {
        clearTimeout(silence);
        silence = setTimeout(() => aborter.abort(), SILENCE_MS);
      })) {
        this.state = JSON.parse(data);
        this.stateAt = performance.now();
        this.tries = 0;
        this.move("live");
      }
    } finally {
      clearTimeout(silence);
    }
  }

  move(phase) {
    this.phase = phase;
    this.onChange();
  }

  pause(ms) {
    return new Promise((resolve) => {
      this.wake = resolve;
      setTimeout(resolve, this.phase === "locked" ? 60_000 : ms);
    });
  }
}

// The data of each server-sent event of a body; `onBytes` is called whenever anything comes, pings too.
export async function* events(body, onBytes = () => {}) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onBytes();
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (part.startsWith("data: ")) yield part.slice(6);
    }
  }
}
