// A client on the TypeScript SDK 2.x, either era: the scenario's mode is "legacy", "auto" or a revision to pin.
import { Client, ProtocolError, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { answers, capabilities, run } from "./scenario.mjs";

await run((session) => {
    const { scenario, declare, seen, command, args } = session;
    const asked = scenario.mode ?? "auto";
    const mode = ["auto", "legacy"].includes(asked) ? asked : { pin: asked };
    const client = new Client({ name: "counterpart-ts2", version: "1.0.0" }, { capabilities: capabilities(declare), versionNegotiation: { mode } });
    const own = answers(session, (code, message) => new ProtocolError(code, message));
    if (declare.includes("sampling")) client.setRequestHandler("sampling/createMessage", own.sample);
    if (declare.includes("elicitation") || declare.includes("url")) client.setRequestHandler("elicitation/create", own.elicit);
    if (declare.includes("roots")) client.setRequestHandler("roots/list", own.listRoots);
    client.setNotificationHandler("notifications/message", (notification) => void seen.logs.push(notification.params.data));
    client.fallbackNotificationHandler = async (notification) => void seen.notifications.push(notification.method);

    const overHttp = command.startsWith("http://");
    const transport = overHttp ? new StreamableHTTPClientTransport(new URL(command)) : new StdioClientTransport({ command, args, stderr: "inherit" });
    const callTool = (params, options) => client.callTool(params, options);
    return { client, transport, callTool, revision: () => client.getNegotiatedProtocolVersion?.() ?? null };
});
