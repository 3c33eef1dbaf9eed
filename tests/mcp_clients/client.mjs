// The second major of the TypeScript SDK: client.mjs BINARY PROJECT MODE, which is auto, legacy, or a revision.

import { createRequire } from 'node:module';
import { run } from './flow.mjs';

// Packages stand where NODE_PATH says, and `import` does not look there.
const require = createRequire(import.meta.url);
const { Client } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const wanted = process.argv[4];
const mode = ['auto', 'legacy'].includes(wanted) ? wanted : { pin: wanted };
await run({ Client, StdioClientTransport }, { versionNegotiation: { mode } }, (client, tool, args, options) =>
    client.callTool({ name: tool, arguments: args }, options),
);
