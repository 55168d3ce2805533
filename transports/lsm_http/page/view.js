// What a state means, and its drawing.  Only text is ever put into the page, never markup that came from a server.

export const COLORS = 6;
const MINUTE_MS = 60_000;
const KINDS = ["weights", "kv", "compute", "encoder"];
const WAITING = new Set(["doorway", "joining", "waiting", "taking"]);

export function sizeText(bytes) {
  if (bytes < 2 ** 20) return bytes < 1024 ? `${bytes} B` : `${(bytes / 2 ** 10).toFixed(0)} KiB`;
  return bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(bytes < 10 * 2 ** 20 ? 1 : 0)} MiB` : `${(bytes / 2 ** 30).toFixed(2)} GiB`;
}

export function secondsText(s) {
  return s < 10 ? `${s.toFixed(1)} s` : s < 120 ? `${s.toFixed(0)} s` : `${(s / 60).toFixed(0)} min`;
}

export function deviceBytes(model) {
  return KINDS.reduce((sum, kind) => sum + (model.bytes[kind]?.device ?? 0), 0);
}

export function stateOf(model, machine) {
  return model.machines[machine]?.state ?? "";
}

// Able to serve.  A KV cache may stay on the device without that.
export function isResident(model) {
  return stateOf(model, "residency") === "resident";
}

export function isWaiting(model) {
  return WAITING.has(stateOf(model, "token"));
}

// The word on a model's card, and how it looks.
export function statusOf(model, isGone) {
  if (isGone) return ["server gone", "bad"];
  const load = stateOf(model, "load");
  if (load === "failed") return ["failed", "bad"];
  if (isWaiting(model)) return ["waits for its turn", "waits"];
  const moving = { arriving: "is being loaded", entering: "moves in", leaving: "moves out" }[stateOf(model, "residency")];
  if (moving) return [moving, "waits"];
  if (isResident(model)) return ["in device memory", "here"];
  return [load === "ready" ? "asleep" : "not loaded", ""];
}

export function holderText(token) {
  const holder = token?.holder;
  return holder ? `${holder.alias || `process ${holder.pid}`} has the device` : "Nobody has the device";
}

export function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

export function colored(node, index) {
  node.style.setProperty("--color", `var(--model-${index % COLORS})`);
  return node;
}

// `scale` is what a full bar means, in bytes.
export function drawBar(bar, entries, scale) {
  const blocks = entries.filter(({ model }) => deviceBytes(model) > 0).map(({ model, index }) => {
    const size = deviceBytes(model);
    const block = colored(element("div"), index);
    block.style.flexBasis = `${(100 * size) / scale}%`;
    block.append(element("b", `${model.alias}  ${sizeText(size)}`), element("span", parts(model).join(" + ")));
    return block;
  });
  bar.replaceChildren(...blocks);
  const names = entries.filter(({ model }) => deviceBytes(model) > 0).map(({ model }) => `${model.alias} with ${sizeText(deviceBytes(model))}`);
  bar.setAttribute("aria-label", names.length ? `Device memory: ${names.join(", ")}` : "Device memory: empty");
}

function parts(model) {
  return KINDS.filter((kind) => model.bytes[kind]?.device > 0).map((kind) => `${kind} ${sizeText(model.bytes[kind].device)}`);
}

export function drawBytes(list, model) {
  const rows = KINDS.flatMap((kind) => {
    const places = Object.entries(model.bytes[kind] ?? {}).filter(([, size]) => size > 0);
    if (!places.length) return [];
    const where = places.map(([place, size]) => `${sizeText(size)} ${place === "file" ? "in the file" : `on the ${place}`}`);
    return [element("dt", kind), element("dd", where.join(", "))];
  });
  list.replaceChildren(...(rows.length ? rows : [element("dt", "memory"), element("dd", "nothing yet")]));
}

export function drawMachines(list, model, ageS) {
  list.replaceChildren(...Object.entries(model.machines).map(([name, { state, since_s }]) => {
    const item = element("li", `${name} `);
    item.append(element("b", state.replaceAll("_", " ")), ` ${secondsText(since_s + ageS)}`);
    return item;
  }));
}

// Spans of time in which a model was in device memory, or waited.
export class History {
  constructor() {
    this.spans = []; // {index, kind, from, to}; `to` is null while it lasts
  }

  note(index, kind, now) {
    const open = this.spans.find((span) => span.index === index && span.to === null);
    if (open?.kind === kind) return;
    if (open) open.to = now;
    if (kind) this.spans.push({ index, kind, from: now, to: null });
    this.spans = this.spans.filter((span) => span.to === null || now - span.to < MINUTE_MS);
  }

  draw(svg, rows, now) {
    svg.setAttribute("viewBox", `0 0 ${MINUTE_MS} ${Math.max(rows, 1) * 10}`);
    svg.replaceChildren(...this.spans.map(({ index, kind, from, to }) => {
      const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      const left = Math.max(0, MINUTE_MS - (now - from));
      const right = MINUTE_MS - (now - (to ?? now));
      rect.setAttribute("x", left);
      rect.setAttribute("width", Math.max(right - left, 60));
      rect.setAttribute("y", index * 10 + 1);
      rect.setAttribute("height", 8);
      rect.setAttribute("class", kind);
      return colored(rect, index);
    }));
  }
}
