// How the TypeScript SDK's own schemas read a frame: a line of JSON text in, a line of what was read out.
import { createInterface } from 'node:readline';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const sdk = createRequire(process.argv[2] + '/');
const types = await import(pathToFileURL(sdk.resolve('@modelcontextprotocol/sdk/types.js')).href);
const calls = { 'tools/call': types.CallToolRequestSchema, 'prompts/get': types.GetPromptRequestSchema, 'resources/read': types.ReadResourceRequestSchema };

function reading(text) {
  const frame = types.JSONRPCMessageSchema.parse(JSON.parse(text));
  const out = { id: frame.id, method: frame.method, code: frame.error?.code };
  const params = frame.method in calls ? calls[frame.method].parse(frame).params : frame.params;
  const result = frame.result === undefined ? undefined : types.ResultSchema.parse(frame.result);
  for (const name of ['name', 'uri', 'arguments', '_meta', 'inputResponses', 'requestState']) out[name] = params?.[name];
  for (const name of ['resultType', 'inputRequests', 'requestState']) out[name] ??= result?.[name];
  return out;
}

for await (const line of createInterface({ input: process.stdin })) {
  let said;
  try {
    said = reading(JSON.parse(line));
  } catch (error) {
    said = null;
  }
  process.stdout.write(JSON.stringify(said) + '\n');
}
