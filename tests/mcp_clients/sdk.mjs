// The first major of the TypeScript SDK: sdk.mjs BINARY PROJECT.

import { createRequire } from 'node:module';
import { run } from './flow.mjs';

// Packages stand where NODE_PATH says, and `import` does not look there.
const require = createRequire(import.meta.url);
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');

await run({ Client, StdioClientTransport }, {}, (client, tool, args, options) =>
    client.callTool({ name: tool, arguments: args }, undefined, options),
);
