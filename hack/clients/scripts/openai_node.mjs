// The openai package for Node. Says and waits for the same lines as steps.py.
import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const packages = process.env.PHAROS_NODE_PACKAGES;
const { default: OpenAI } = await import(pathToFileURL(createRequire(join(packages, "x.js")).resolve("openai")).href);
const version = JSON.parse(readFileSync(join(packages, "openai", "package.json"), "utf8")).version;

const { PHAROS_BASE: base, PHAROS_KEY: key, PHAROS_WRONG_KEY: wrongKey } = process.env;
const engines = JSON.parse(process.env.PHAROS_ENGINES);
const llamacpp = engines.find((one) => one.kind === "llamacpp");
const messages = [
  { role: "system", content: "Answer briefly." },
  { role: "user", content: "Greet the harbor at dawn." },
];
const parameters = { type: "object", properties: { harbor: { type: "string" } }, required: ["harbor"] };
const tools = [{ type: "function", function: { name: "get_tide", description: "When the tide comes.", parameters } }];
const limit = 8;

const client = (apiKey = key) => new OpenAI({ baseURL: `${base}/v1`, apiKey, maxRetries: 0, timeout: 60_000 });
const ask = (model, more = {}) => client().chat.completions.create({ model, messages, max_tokens: limit, ...more });
const check = (claim, what) => {
  if (!claim) throw new Error(`not so: ${JSON.stringify(what)}`);
};
const all = async (stream) => {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
};
const fails = async (kind, call, word) => {
  try {
    await call();
  } catch (error) {
    check(error instanceof kind && String(error.message).includes(word), String(error));
    return;
  }
  throw new Error("nothing was thrown");
};

const steps = [];
const once = (name, run) => steps.push([name, run]);
const onEach = (name, run) => engines.forEach((engine) => once(`${name} (${engine.kind})`, () => run(engine)));

onEach("chat", async (engine) => {
  const reply = await ask(engine.chat);
  check(reply.usage.completion_tokens === limit, reply);
});
onEach("streamed chat", async (engine) => {
  const parts = await all(await ask(engine.chat, { stream: true }));
  check(parts.every((part) => part.choices.length), "an event without choices was not asked for");
  check(parts.at(-1).choices[0].finish_reason === "length", parts.at(-1));
});
onEach("streamed chat with usage", async (engine) => {
  const parts = await all(await ask(engine.chat, { stream: true, stream_options: { include_usage: true } }));
  check(parts.at(-1).usage.completion_tokens === limit, parts.at(-1));
});
onEach("chat with tools", async (engine) => {
  check((await ask(engine.chat, { tools })).choices[0].finish_reason);
  const parts = await all(await ask(engine.chat, { tools, stream: true }));
  check(parts.at(-1).choices[0].finish_reason, parts.at(-1));
});
onEach("responses", async (engine) => {
  const asked = { model: engine.chat, input: messages[1].content, max_output_tokens: limit };
  check((await client().responses.create(asked)).output_text);
  const kinds = (await all(await client().responses.create({ ...asked, stream: true }))).map((event) => event.type);
  check(["response.completed", "response.incomplete"].includes(kinds.at(-1)), kinds);
});
onEach("embeddings", async (engine) => {
  const reply = await client().embeddings.create({ model: engine.embed, input: ["hello", "two words"] });
  check(reply.data.length === 2 && reply.data.every((one) => one.embedding.length), reply);
});
once("models", async () => {
  const listed = (await all(client().models.list())).map((model) => model.id);
  check(engines.every((engine) => listed.includes(engine.chat)), listed);
});
once("comments while waiting", async () => {
  const parts = await all(await ask("waits", { stream: true }));
  const text = parts.map((part) => part.choices[0].delta.content ?? "").join("");
  check(text === "at last", text);
});
once("unknown model", () => fails(OpenAI.NotFoundError, () => ask("no-such-model"), "no-such-model"));
once("wrong key", () =>
  fails(OpenAI.AuthenticationError, () => client(wrongKey).chat.completions.create({ model: llamacpp.chat, messages }), "key"),
);

const say = (told) => console.log(`@@ ${JSON.stringify(told)}`);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
say({ version });
for (const [name, run] of steps) {
  say({ begin: name });
  await lines.next();
  try {
    await run();
    say({ end: name });
  } catch (error) {
    say({ end: name, fault: String(error).slice(0, 2000) });
  }
}
process.exit(0);
