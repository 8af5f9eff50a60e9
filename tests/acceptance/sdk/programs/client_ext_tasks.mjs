// A client on @modelcontextprotocol/ext-tasks over the TypeScript SDK 2.x: each call may become a task, which the package drives to its end.
// `task` prints a line when the call has become one, `cancel_task` starts a task and cancels it.
// What the SDK cannot send, ext-tasks sends by `rawDispatch`, over the SDK's transport.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { createTaskSessionFromClient } from "@modelcontextprotocol/ext-tasks/client";

import { answers, capabilities, run } from "./scenario.mjs";

const clientInfo = { name: "counterpart-ext-tasks", version: "1.0.0" };

// Sends requests past the SDK's client, which knows no tasks, and takes their answers from its transport.
function raw(transport) {
    const waiting = new Map();
    const inner = transport.onmessage;
    transport.onmessage = (message, extra) => {
        const settle = waiting.get(message.id);
        if (!settle) return inner(message, extra);
        waiting.delete(message.id);
        settle(message.error ? { kind: "error", error: message.error } : { kind: "result", result: message.result });
    };
    let number = 0;
    return (request, { signal } = {}) =>
        new Promise((resolve, reject) => {
            const id = `raw-${++number}`;
            signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
            waiting.set(id, resolve);
            transport.send({ jsonrpc: "2.0", id, ...request }).catch(reject);
        });
}

await run((session) => {
    const { scenario, declare, seen, command, args } = session;
    const client = new Client(clientInfo, { capabilities: capabilities(declare), versionNegotiation: { mode: { pin: "2026-07-28" } } });
    const own = answers(session, (_code, message) => new Error(message));
    const onInputRequest = (request) => ({ elicitation: own.elicit, sampling: own.sample, roots: own.listRoots })[request.kind](request);
    const overHttp = command.startsWith("http://");
    const transport = overHttp ? new StreamableHTTPClientTransport(new URL(command)) : new StdioClientTransport({ command, args, stderr: "inherit" });
    let tasks;
    const opened = () => {
        const v2RequestFraming = { protocolVersion: "2026-07-28", clientInfo, clientCapabilities: capabilities(declare) };
        tasks ??= createTaskSessionFromClient(client, { endpointId: "counterpart", rawDispatch: raw(transport), v2RequestFraming, onInputRequest });
        return tasks;
    };
    const callTool = async ({ name, arguments: given }, { tells } = {}) => {
        const execution = await opened().callTool(name, given);
        if (tells && execution.kind === "task") console.log(JSON.stringify({ task: name }));
        const states = [];
        const { outcome } = await execution.settle({ onEvent: (event) => void (event.type === "task" && states.push(event.task.status)) });
        seen.progress.push([execution.kind, ...new Set(states)]);
        if (outcome.status === "completed") return outcome.result;
        throw Object.assign(new Error(outcome.error?.message ?? outcome.status), { code: outcome.error?.code ?? 0 });
    };
    const cancelTask = async ({ name, arguments: given }) => {
        const execution = await opened().callTool(name, given ?? {});
        await execution.cancel();
        return { status: (await execution.result()).status };
    };
    return { client, transport, callTool, cancelTask, revision: () => client.getNegotiatedProtocolVersion?.() ?? null };
});
