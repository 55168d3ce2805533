// The page: watches its own server and those of ?peer=, and draws what they say.

import { Server } from "./servers.js";
import { Talk } from "./talk.js";
import { History, colored, deviceBytes, drawBar, drawBytes, drawMachines, element, holderText, isResident, isWaiting, secondsText, statusOf } from "./view.js";

const byId = (id) => document.getElementById(id);
const withSlash = (url) => (url.endsWith("/") ? url : `${url}/`);

const peers = new URLSearchParams(location.search).getAll("peer").filter((url) => /^https?:\/\//.test(url));
const urls = [...new Set([new URL(".", location.href).href, ...peers].map(withSlash))];
const servers = urls.map((url) => new Server(url, draw));
const cards = new Map(); // by server and alias
const history = new History();
let largest = 1; // bytes; the most that one model was seen to have in device memory

function entries() {
  return servers.flatMap((server) => (server.state?.models ?? []).map((model) => ({ server, model, isGone: server.phase !== "live" })))
    .map((entry, index) => ({ ...entry, index }));
}

function draw() {
  const all = entries();
  const now = performance.now();
  for (const { model, index, isGone } of all) {
    largest = Math.max(largest, deviceBytes(model), model.bytes.weights?.file ?? 0);
    history.note(index, isGone ? null : isResident(model) ? "here" : isWaiting(model) ? "waiting" : null, now);
  }
  drawServers();
  drawDevice(all.filter(({ isGone }) => !isGone));
  all.forEach(drawCard);
  drawLegend(all);
  drawTargets(all);
  drawKey();
}

function drawServers() {
  const words = { live: "", gone: " is gone, trying again", connecting: " …", locked: " wants a key" };
  byId("servers").replaceChildren(...servers.map(({ url, phase }) => element("li", new URL(url).host + words[phase], phase)));
}

function drawDevice(live) {
  const server = servers.find(({ phase }) => phase === "live");
  const token = server?.state.token;
  const ageS = server ? (performance.now() - server.stateAt) / 1000 : 0;
  byId("device").classList.toggle("gone", !server);
  setText("held", token?.holder && token.held_s !== null ? `for ${secondsText(token.held_s + ageS)}` : "");
  setText("holder", server ? holderText(token) : servers.some(({ phase }) => phase === "gone") ? "Server gone. Trying to reach it again …" : "Connecting …");
  const used = live.reduce((sum, { model }) => sum + deviceBytes(model), 0);
  drawBar(byId("bar"), live, Math.max(server?.state.budget_bytes ?? 0, largest, used));
  const waiting = (token?.queue ?? []).map(({ alias, pid, waited_s }) => [alias || `process ${pid}`, secondsText(waited_s + ageS)]);
  byId("queue").replaceChildren(...(waiting.length ? ["In line: ", ...waiting.flatMap(([name, time], at) => [at ? ", then " : "", element("b", name), ` (${time})`])] : ["Nobody is waiting."]));
  const sums = { handoffs: "hand-offs", wakes: "wakes", refusals: "refused" };
  byId("counters").replaceChildren(...Object.entries(sums).map(([name, words]) => {
    const row = element("div");
    const sum = servers.reduce((total, { state }) => total + (state?.counters?.[name] ?? 0), 0);
    row.append(element("dt", words), element("dd", String(sum)));
    return row;
  }));
}

function drawCard({ server, model, index, isGone }) {
  const { node, part, talk } = cardOf(server, model.alias, index);
  const ageS = isGone ? 0 : (performance.now() - server.stateAt) / 1000;
  const [word, look] = statusOf(model, isGone);
  node.classList.toggle("gone", isGone);
  part.status.textContent = word;
  part.status.className = `status ${look}`;
  part.why.textContent = isGone ? `${new URL(server.url).host} does not answer; this is the last that was heard.` : sentence(model.why);
  drawBytes(part.bytes, model);
  drawMachines(part.machines, model, ageS);
  for (const name of ["wake", "sleep"]) part[name].disabled = isGone;
  part.forget.hidden = talk.messages.length === 0 || talk.isBusy;
}

function cardOf(server, alias, index) {
  const id = `${server.url} ${alias}`;
  if (!cards.has(id)) {
    const node = colored(byId("model-card").content.firstElementChild.cloneNode(true), index);
    const part = Object.fromEntries([...node.querySelectorAll("[data-is]")].map((one) => [one.dataset.is, one]));
    part.alias.textContent = alias;
    part.talk.setAttribute("aria-label", `Conversation with ${alias}`);
    const talk = new Talk(part.talk);
    for (const name of ["wake", "sleep"]) part[name].addEventListener("click", () => move(server, alias, name, part));
    part.forget.addEventListener("click", () => (talk.forget(), draw()));
    byId("models").append(node);
    cards.set(id, { node, part, talk });
  }
  return cards.get(id);
}

async function move(server, alias, name, part) {
  part[name].disabled = true;
  try {
    const response = await server.fetch(`lsm/${name}`, { method: "POST", body: JSON.stringify({ model: alias }) });
    if (!response.ok) part.why.textContent = (await response.json()).error.message;
  } catch {
    part.why.textContent = "The server does not answer.";
  }
  part[name].disabled = false;
}

function drawTargets(all) {
  const names = all.map(({ model }) => model.alias).join("\n");
  const targets = byId("targets");
  if (targets.dataset.names === names) return;
  targets.dataset.names = names;
  const buttons = all.map((entry) => colored(button(`Ask ${entry.model.alias}`, () => ask([entry])), entry.index));
  if (all.length > 1) buttons.push(button(all.length === 2 ? "Ask both" : "Ask all", () => ask(all)));
  targets.replaceChildren(...buttons);
}

function button(text, onClick) {
  const made = element("button", text, "primary");
  made.type = "button";
  made.addEventListener("click", onClick);
  return made;
}

function ask(targets) {
  if (!byId("ask").reportValidity()) return;
  const text = byId("prompt").value;
  for (const { server, model, index } of targets) {
    const { talk } = cardOf(server, model.alias, index);
    if (!talk.isBusy) talk.ask(server, model.alias, text, Number(byId("length").value)).finally(draw);
  }
}

function drawLegend(all) {
  byId("legend").replaceChildren(...all.map(({ model, index }) => {
    const name = colored(element("span"), index);
    name.append(element("span", "", "dot"), model.alias);
    return name;
  }));
}

function drawKey() {
  byId("key").hidden = !servers.some(({ phase }) => phase === "locked");
}

function sentence(text) {
  return text ? `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}` : "";
}

function setText(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

byId("ask").addEventListener("submit", (event) => event.preventDefault());
byId("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask(entries());
});
byId("key").addEventListener("submit", (event) => {
  event.preventDefault();
  for (const server of servers.filter(({ phase }) => phase === "locked")) server.key = byId("key-value").value;
});
setInterval(() => {
  draw();
  history.draw(byId("timeline"), entries().length, performance.now());
}, 500);
for (const server of servers) server.watch();
draw();
