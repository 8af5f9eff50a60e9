// How the schemas of a TypeScript SDK read a frame: a line of JSON with its text and its kind in, a line of what was read out.
// The schemas' module is the second argument: of 1.x or of 2.x.
import { createInterface } from 'node:readline';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const sdk = createRequire(process.argv[2] + '/');
const types = await import(pathToFileURL(sdk.resolve(process.argv[3])).href);
const requests = {
  'tools/call': types.CallToolRequestSchema,
  'prompts/get': types.GetPromptRequestSchema,
  'resources/read': types.ReadResourceRequestSchema,
  'sampling/createMessage': types.CreateMessageRequestSchema,
  'elicitation/create': types.ElicitRequestSchema,
};
const results = { sampled: types.CreateMessageResultSchema, elicited: types.ElicitResultSchema, other: types.ResultSchema };
const MEMBERS = [
  ...['name', 'uri', 'arguments', '_meta', 'inputResponses', 'requestState'],
  ...['messages', 'maxTokens', 'systemPrompt', 'tools', 'mode', 'message', 'url', 'requestedSchema'],
];

function reading(text, kind) {
  const frame = types.JSONRPCMessageSchema.parse(JSON.parse(text));
  const out = { id: frame.id, method: frame.method, code: frame.error?.code };
  const params = frame.method in requests ? requests[frame.method].parse(frame).params : frame.params;
  const result = frame.result === undefined ? undefined : results[kind].parse(frame.result);
  for (const name of MEMBERS) out[name] = params?.[name];
  for (const name of ['resultType', 'inputRequests', 'requestState', 'action', 'content', 'role', 'model', 'stopReason']) out[name] ??= result?.[name];
  return out;
}

for await (const line of createInterface({ input: process.stdin })) {
  const { text, kind } = JSON.parse(line);
  let said;
  try {
    said = reading(text, kind);
  } catch (error) {
    said = null;
  }
  process.stdout.write(JSON.stringify(said) + '\n');
}
