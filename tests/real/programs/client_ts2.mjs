// A client on the TypeScript SDK 2.x, either era: the scenario's mode is "legacy", "auto" or a revision to pin.
import { Client, ProtocolError, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { answers, args, capabilities, command, declare, run, scenario, seen } from "./scenario.mjs";

const mode = scenario.mode === undefined || ["auto", "legacy"].includes(scenario.mode) ? (scenario.mode ?? "auto") : { pin: scenario.mode };
const client = new Client({ name: "counterpart-ts2", version: "1.0.0" }, { capabilities: capabilities(), versionNegotiation: { mode } });
const own = answers((code, message) => new ProtocolError(code, message));
if (declare.includes("sampling")) client.setRequestHandler("sampling/createMessage", own.sample);
if (declare.includes("elicitation") || declare.includes("url")) client.setRequestHandler("elicitation/create", own.elicit);
if (declare.includes("roots")) client.setRequestHandler("roots/list", own.listRoots);
client.setNotificationHandler("notifications/message", (notification) => void seen.logs.push(notification.params.data));
client.fallbackNotificationHandler = async (notification) => void seen.notifications.push(notification.method);

const overHttp = command.startsWith("http://");
const transport = overHttp ? new StreamableHTTPClientTransport(new URL(command)) : new StdioClientTransport({ command, args, stderr: "inherit" });
await run(client, transport, (params, options) => client.callTool(params, options), () => client.getNegotiatedProtocolVersion?.() ?? null);
