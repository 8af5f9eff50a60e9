// A client on the TypeScript SDK 1.x, handshake revisions only.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
    CreateMessageRequestSchema,
    ElicitRequestSchema,
    ListRootsRequestSchema,
    LoggingMessageNotificationSchema,
    McpError,
} from "@modelcontextprotocol/sdk/types.js";

import { answers, args, capabilities, command, declare, run, seen } from "./scenario.mjs";

const client = new Client({ name: "counterpart-ts1", version: "1.0.0" }, { capabilities: capabilities() });
const own = answers((code, message) => new McpError(code, message));
if (declare.includes("sampling")) client.setRequestHandler(CreateMessageRequestSchema, own.sample);
if (declare.includes("elicitation") || declare.includes("url")) client.setRequestHandler(ElicitRequestSchema, own.elicit);
if (declare.includes("roots")) client.setRequestHandler(ListRootsRequestSchema, own.listRoots);
client.setNotificationHandler(LoggingMessageNotificationSchema, (notification) => void seen.logs.push(notification.params.data));
client.fallbackNotificationHandler = async (notification) => void seen.notifications.push(notification.method);

const overHttp = command.startsWith("http://");
const transport = overHttp ? new StreamableHTTPClientTransport(new URL(command)) : new StdioClientTransport({ command, args, stderr: "inherit" });
await run(client, transport, (params, options) => client.callTool(params, undefined, options), () => transport._protocolVersion ?? null);
