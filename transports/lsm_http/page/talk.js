// One conversation with one model: streamed answers, and what they cost.

import { events } from "./servers.js";
import { element, secondsText } from "./view.js";

export class Talk {
  constructor(log) {
    this.log = log;
    this.messages = [];
    this.isBusy = false;
  }

  forget() {
    this.messages = [];
    this.log.replaceChildren();
    this.log.hidden = true;
  }

  async ask(server, alias, text, maxTokens) {
    this.isBusy = true;
    this.log.hidden = false;
    const answer = element("p", "", "busy");
    const facts = element("p", "asked, and waiting …", "facts");
    this.log.append(element("p", text, "asked"), answer, facts);
    this.follow();
    const messages = [...this.messages, { role: "user", content: text }];
    const body = JSON.stringify({ model: alias, messages, stream: true, max_tokens: maxTokens });
    const started = performance.now();
    let waitedMs = null;
    let said = "";
    try {
      const response = await server.fetch("v1/chat/completions", { method: "POST", body });
      if (!response.ok) throw new Error(await errorText(response));
      let timings = null;
      for await (const data of events(response.body)) {
        waitedMs ??= performance.now() - started;
        if (data === "[DONE]") break;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new Error(chunk.error.message);
        said += chunk.choices[0]?.delta.content ?? "";
        if (said) facts.textContent = `answers, after ${waitText(waitedMs)}`;
        timings = chunk.timings ?? timings;
        answer.textContent = said;
        this.follow();
      }
      if (!timings) throw new Error("the answer was cut off: the server ended");
      facts.textContent = factsText(timings, waitedMs);
      this.messages = [...messages, { role: "assistant", content: said }];
    } catch (error) {
      facts.textContent = !(error instanceof TypeError) ? error.message : said ? "cut off: the server is gone" : "the server does not answer";
      facts.className = "facts error";
    } finally {
      answer.classList.remove("busy");
      this.isBusy = false;
      this.follow();
    }
  }

  follow() {
    this.log.scrollTop = this.log.scrollHeight;
  }
}

async function errorText(response) {
  const body = await response.json().catch(() => null);
  const again = response.headers.get("Retry-After");
  return `${body?.error?.message ?? `HTTP ${response.status}`}${again ? `; try again in ${again} s` : ""}`;
}

function factsText(timings, waitedMs) {
  const speed = timings.predicted_per_second > 0 ? ` at ${timings.predicted_per_second.toFixed(0)} tokens/s` : "";
  return [
    `first text after ${waitText(waitedMs)}`,
    `prompt: ${timings.cache_n} tokens from the cache, ${timings.prompt_n} computed`,
    `answer: ${timings.predicted_n} tokens${speed}`,
  ].join(" · ");
}

function waitText(ms) {
  return ms < 1000 ? `${ms.toFixed(0)} ms` : secondsText(ms / 1000);
}
