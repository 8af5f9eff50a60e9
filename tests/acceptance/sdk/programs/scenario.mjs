// What both TypeScript clients do with a scenario (tests/acceptance/sdk/peers.py). `client_tsN.mjs SCENARIO COMMAND...|URL` has one session. `client_tsN.mjs`
// alone has one after the other: each line on stdin is `[SCENARIO, [COMMAND...|URL]]`. Each session prints one JSON line of what it saw.
import { createInterface } from "node:readline";

const END = "-- end of the session --";
let reader;

// The next line on stdin, undefined at its end. It is not read before somebody asks.
async function line() {
    reader ??= createInterface({ input: process.stdin })[Symbol.asyncIterator]();
    return (await reader.next()).value;
}

export function capabilities(declare) {
    const declared = {};
    if (declare.includes("sampling")) declared.sampling = {};
    if (declare.includes("elicitation")) declared.elicitation = { form: {} };
    if (declare.includes("url")) declared.elicitation = { ...declared.elicitation, url: {} };
    if (declare.includes("roots")) declared.roots = { listChanged: true };
    return declared;
}

// The answers of the client's side; `refused` makes the SDK's own protocol error.
export function answers({ scenario, seen }, refused) {
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

const progressed = (seen) => ({ progress, total, message }) => void seen.progress.push([progress, total ?? null, message ?? null]);

// Many calls at once for some seconds; every answer must carry its own mark, and every log line must come once.
async function storm(step, callTool, seen) {
    const wrong = [];
    const fail = (what) => wrong.length < 20 && wrong.push(what);
    const before = seen.logs.length;
    const until = Date.now() + step.seconds * 1000;
    let numbers = 0;
    let calls = 0;
    const marks = [];
    const told = () => seen.logs.slice(before).map(String).filter((line) => line.startsWith(step.mark));
    async function expect(name, args, says, options = {}) {
        const result = plain(await callTool({ name, arguments: args }, { timeout: step.patience * 1000, ...options }));
        calls += 1;
        if (result.error || !result.text.includes(says)) fail(`${name} ${JSON.stringify(args)}: ${JSON.stringify(result)}`);
    }
    async function one(which, number) {
        const mark = `${step.mark}-${number}`;
        if (which === 0) return expect("add", { a: number, b: 1 }, String(number + 1));
        if (which <= 2) return expect("classify", { text: mark }, `seen ${mark}.`);
        if (which === 3) return expect("confirm", {}, "accept|True|from the client");
        if (which === 5) {
            await expect("tell", { mark, times: 3 }, mark);
            marks.push(mark);
            return;
        }
        const steps = [];
        await expect("count", { to: 3 }, "3", { onprogress: ({ progress }) => void steps.push(progress) });
        // This SDK forgets a progress token with the answer, also for progress that it read in one piece with it: the last may be missing.
        // In between may come steps of the gate, of less than one.
        const own = steps.filter(Number.isInteger);
        const rising = steps.every((value, index) => index === 0 || value > steps[index - 1]);
        if (!rising || own.some((value, index) => value !== index + 1)) fail(`${mark}: progress ${steps}`);
    }
    async function worker() {
        while (Date.now() < until) {
            const number = numbers++;
            try {
                await one(number % 6, number);
            } catch (error) {
                fail(`call ${number} of kind ${number % 6}: ${error.message}`);
            }
        }
    }
    await Promise.all(Array.from({ length: step.at_once }, worker));
    const turns = new Map(step.tells ? marks.map((mark) => [mark, []]) : []);
    // log lines may come after the answer of their call, on a stream of their own
    for (const end = Date.now() + step.patience * 1000; step.tells && told().length < 3 * marks.length && Date.now() < end; )
        await new Promise((resolve) => setTimeout(resolve, 10));
    const lines = told();
    for (const line of lines) {
        const at = line.lastIndexOf(":");
        turns.set(line.slice(0, at), [...(turns.get(line.slice(0, at)) ?? []), Number(line.slice(at + 1))]);
    }
    for (const [mark, order] of turns) if ((step.in_order ? order : order.toSorted()).join() !== "0,1,2") fail(`${mark}: log lines ${order}`);
    for (const key of ["logs", "asked", "notifications"]) seen[key].length = 0;
    return { calls, told: lines.length, wrong };
}

async function act(step, { callTool, cancelTask, client }, seen) {
    switch (step.do) {
        case "tools":
            return (await client.listTools()).tools.map((tool) => tool.name).sort();
        case "ping":
            await client.ping();
            return "pong";
        case "call":
            return plain(await callTool({ name: step.name, arguments: step.arguments ?? {} }, { onprogress: progressed(seen), timeout: 50000 }));
        case "task":
            return plain(await callTool({ name: step.name, arguments: step.arguments ?? {} }, { tells: true }));
        case "resource":
            return (await client.readResource({ uri: step.uri })).contents[0].text;
        case "prompt":
            return (await client.getPrompt({ name: step.name, arguments: step.arguments ?? {} })).messages[0].content.text;
        case "storm":
            return storm(step, callTool, seen);
        case "cancel_task":
            return cancelTask(step);
        case "cancel": {
            const taken = new AbortController();
            const told = step.when === "told";
            const first = (progress) => {
                progressed(seen)(progress);
                if (!told) taken.abort("taken back");
            };
            if (told) line().then(() => taken.abort("taken back"));
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

async function session(opened, scenario, [command, ...args]) {
    const seen = { asked: [], progress: [], logs: [], notifications: [], results: [] };
    const peer = opened({ scenario, declare: scenario.declare ?? [], seen, command, args });
    try {
        await peer.client.connect(peer.transport);
        seen.revision = peer.revision();
        seen.server = peer.client.getServerVersion()?.name;
        for (const step of scenario.steps) {
            try {
                seen.results.push(await act(step, peer, seen));
            } catch (error) {
                if (typeof error.code !== "number") throw error;
                seen.results.push({ failed: { code: error.code, message: error.message, data: error.data ?? null } });
            }
        }
    } finally {
        await peer.client.close();
    }
    return seen;
}

// `opened` makes the client of one session: { client, transport, callTool, revision }, and cancelTask if it knows tasks.
export async function run(opened) {
    if (process.argv.length > 2) {
        console.log(JSON.stringify(await session(opened, JSON.parse(process.argv[2]), process.argv.slice(3))));
        process.stdin.destroy();
        return;
    }
    for (let next = await line(); next !== undefined; next = await line()) {
        const [scenario, at] = JSON.parse(next);
        const seen = await session(opened, scenario, at).catch((error) => ({ broken: String(error.stack) }));
        console.error(END);
        console.log(JSON.stringify(seen));
    }
}
