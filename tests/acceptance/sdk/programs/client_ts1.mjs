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

import { answers, capabilities, run } from "./scenario.mjs";

await run((session) => {
    const { declare, seen, command, args } = session;
    const client = new Client({ name: "counterpart-ts1", version: "1.0.0" }, { capabilities: capabilities(declare) });
    const own = answers(session, (code, message) => new McpError(code, message));
    if (declare.includes("sampling")) client.setRequestHandler(CreateMessageRequestSchema, own.sample);
    if (declare.includes("elicitation") || declare.includes("url")) client.setRequestHandler(ElicitRequestSchema, own.elicit);
    if (declare.includes("roots")) client.setRequestHandler(ListRootsRequestSchema, own.listRoots);
    client.setNotificationHandler(LoggingMessageNotificationSchema, (notification) => void seen.logs.push(notification.params.data));
    client.fallbackNotificationHandler = async (notification) => void seen.notifications.push(notification.method);

    const overHttp = command.startsWith("http://");
    const transport = overHttp ? new StreamableHTTPClientTransport(new URL(command)) : new StdioClientTransport({ command, args, stderr: "inherit" });
    const callTool = (params, options) => client.callTool(params, undefined, options);
    return { client, transport, callTool, revision: () => transport._protocolVersion ?? null };
});
