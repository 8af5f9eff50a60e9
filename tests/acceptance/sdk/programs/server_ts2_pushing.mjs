// A server on the TypeScript SDK 2.x, both eras, that asks by requests alone, which 2026-07-28 does not have.
import { McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import * as z from "zod";

const form = {
  type: "object",
  properties: { confirm: { type: "boolean" }, reason: { type: "string", minLength: 1 } },
  required: ["confirm", "reason"],
};
const said = (text) => ({ content: [{ type: "text", text }] });

serveStdio(() => {
  const server = new McpServer({ name: "counterpart-ts2-pushing", version: "1.0.0" });
  server.registerTool("classify", { inputSchema: z.object({ text: z.string() }) }, async ({ text }, ctx) => {
    const messages = [{ role: "user", content: { type: "text", text: `classify: ${text}` } }];
    const result = await ctx.mcpReq.requestSampling({ messages, maxTokens: 200 });
    return said(`${result.model}|${result.stopReason}|${result.content.text}`);
  });
  server.registerTool("confirm", {}, async (ctx) => {
    const result = await ctx.mcpReq.elicitInput({ message: "Delete 3 accounts?", requestedSchema: form });
    return said([result.action, ...(result.content ? [result.content.confirm ? "True" : "False", result.content.reason] : [])].join("|"));
  });
  return server;
});
