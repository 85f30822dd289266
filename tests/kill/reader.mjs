// Reads replies with OpenAI's package for Node: cases come as lines of JSON, verdicts go back the same way.
// Run as `node reader.mjs FOLDER_OF_THE_PACKAGE`; ends with its standard input.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { join } from "node:path";

const load = createRequire(join(process.argv[2], "package.json"));
const { OpenAI, OpenAIError } = load("openai");
const clients = new Map();

function client(url) {
  const options = { baseURL: url, apiKey: "any", maxRetries: 0, timeout: 15000, logLevel: "off" };
  if (!clients.has(url)) clients.set(url, new OpenAI(options));
  return clients.get(url);
}

function call(openai, protocol, args) {
  if (protocol === "chat") return openai.chat.completions.create(args);
  if (protocol === "completions") return openai.completions.create(args);
  return openai.responses.create(args);
}

// A fault of this program must not be taken for an error of the SDK: those are its own, the transport's, or of parsing.
function isTold(error) {
  return error instanceof OpenAIError || error instanceof SyntaxError || error?.cause !== undefined ||
    error?.name === "AbortError" || isUnread(error) || ["terminated", "fetch failed", "Premature close"].includes(error?.message);
}

// A document of another shape than the package expects, such as none at all, fails inside it.
function isUnread(error) {
  return error instanceof TypeError && /node_modules.openai/.test(error.stack ?? "");
}

async function read({ url, protocol, arguments: args }) {
  try {
    const got = await call(client(url), protocol, args);
    if (args.stream) {
      for await (const event of got) {
        if (event.type === "response.failed" || event.type === "error") return ["error event", event.type];
      }
    }
    return ["answer", ""];
  } catch (error) {
    if (isTold(error)) return ["raised", error.constructor.name];
    return ["fault", `${error?.constructor?.name}: ${error?.message}`];
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const said = JSON.parse(line);
  read(said).then(([outcome, detail]) => process.stdout.write(JSON.stringify({ id: said.id, outcome, detail }) + "\n"));
}
