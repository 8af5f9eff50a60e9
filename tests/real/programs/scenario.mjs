// What both TypeScript clients do with a scenario: `client_tsN.mjs SCENARIO COMMAND...|URL` prints one JSON line of what it saw (tests/real/peers.py).

export const scenario = JSON.parse(process.argv[2]);
export const [command, ...args] = process.argv.slice(3);
export const declare = scenario.declare ?? [];
export const seen = { asked: [], progress: [], logs: [], notifications: [], results: [] };

export function capabilities() {
    const declared = {};
    if (declare.includes("sampling")) declared.sampling = {};
    if (declare.includes("elicitation")) declared.elicitation = { form: {} };
    if (declare.includes("url")) declared.elicitation = { ...declared.elicitation, url: {} };
    if (declare.includes("roots")) declared.roots = { listChanged: true };
    return declared;
}

// The answers of the client's side; `refused` makes the SDK's own protocol error.
export function answers(refused) {
    return {
        sample(request) {
            seen.asked.push({ kind: "sampling", params: request.params });
            if (scenario.refuse) throw refused(-1, "User rejected sampling request");
            return { role: "assistant", content: { type: "text", text: "from the client" }, model: "client-model", stopReason: "endTurn" };
        },
        elicit(request) {
            seen.asked.push({ kind: "elicitation", params: request.params });
            if (scenario.refuse) return { action: "decline" };
            if (request.params.mode === "url") return { action: "accept" };
            return { action: "accept", content: scenario.content ?? { confirm: true, reason: "from the client" } };
        },
        listRoots() {
            seen.asked.push({ kind: "roots" });
            return { roots: [{ uri: "file:///srv/project", name: "project" }] };
        },
    };
}

function plain(result) {
    const text = (result.content ?? []).filter((block) => block.type === "text").map((block) => block.text).join("");
    return { error: Boolean(result.isError), ...(text.length < 2000 ? { text } : { length: text.length }) };
}

function progressed({ progress, total, message }) {
    seen.progress.push([progress, total ?? null, message ?? null]);
}

async function act(step, callTool, client) {
    switch (step.do) {
        case "tools":
            return (await client.listTools()).tools.map((tool) => tool.name).sort();
        case "ping":
            await client.ping();
            return "pong";
        case "call":
            return plain(await callTool({ name: step.name, arguments: step.arguments ?? {} }, { onprogress: progressed, timeout: 50000 }));
        case "resource":
            return (await client.readResource({ uri: step.uri })).contents[0].text;
        case "prompt":
            return (await client.getPrompt({ name: step.name, arguments: step.arguments ?? {} })).messages[0].content.text;
        case "cancel": {
            const taken = new AbortController();
            const told = step.when === "told";
            const first = (progress) => {
                progressed(progress);
                if (!told) taken.abort("taken back");
            };
            if (told) process.stdin.once("data", () => taken.abort("taken back"));
            try {
                return plain(await callTool({ name: step.name, arguments: step.arguments ?? {} }, { onprogress: first, signal: taken.signal }));
            } catch (error) {
                if (taken.signal.aborted) return { cancelled: true };
                throw error;
            }
        }
        default:
            throw new Error(`no such step: ${step.do}`);
    }
}

export async function run(client, transport, callTool, revision) {
    await client.connect(transport);
    seen.revision = revision();
    seen.server = client.getServerVersion()?.name;
    for (const step of scenario.steps) {
        try {
            seen.results.push(await act(step, callTool, client));
        } catch (error) {
            if (typeof error.code !== "number") throw error;
            seen.results.push({ failed: { code: error.code, message: error.message, data: error.data ?? null } });
        }
    }
    await client.close();
    console.log(JSON.stringify(seen));
    process.stdin.destroy();
}
