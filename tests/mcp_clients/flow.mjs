// What a client of either TypeScript SDK does with a project: as flow.py. The SDKs hold each result against its schema, once they
// have listed the tools.

import { setTimeout as sleep } from 'node:timers/promises';

const PATIENCE = 30_000;
const CLIENT = { name: 'mcp-clients', version: '1.0.0' };

function saw(what, details) {
    console.log(JSON.stringify({ saw: what, ...details }));
}

// Connects, plays all, and ends the connection. `call` hands a tool, its arguments and the request's options to the SDK.
export async function run({ Client, StdioClientTransport }, options, call) {
    const [binary, project] = process.argv.slice(2);
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith('XDG_')));
    const client = new Client(CLIENT, options);
    // What the SDK complains of goes to standard error, and fails the test.
    client.onerror = error => console.error(String(error));
    const transport = new StdioClientTransport({ command: binary, args: ['mcp', '--project', project], env });
    // The first major says it nowhere else.
    let version = null;
    transport.setProtocolVersion = negotiated => (version = negotiated);
    await client.connect(transport);
    saw('connection', { version, server: client.getServerVersion()?.name ?? null });
    const { tools } = await client.listTools();
    saw('tools', { names: tools.map(tool => tool.name), are_checked: tools.every(tool => tool.outputSchema) });
    await call(client, 'no_such_tool', {}).catch(error => saw('error', { code: error.code }));
    await play((tool, args, options) => call(client, tool, args, options));
    const ending = performance.now();
    await client.close();
    saw('end', { seconds: (performance.now() - ending) / 1000 });
}

async function play(call) {
    async function act(tool, args = {}) {
        const result = await call(tool, args);
        if (result.isError) throw new Error(`${tool}: ${result.content[0].text}`);
        return result.structuredContent;
    }

    // Waits until a row ends with this: a shell may have shown its prompt before it.
    async function shown(name, end) {
        const deadline = performance.now() + PATIENCE;
        for (;;) {
            const { output } = await act('get_process_output', { process_name: name });
            const row = output.split('\n').find(row => row.endsWith(end));
            if (row !== undefined) return saw('output', { process: name, row });
            if (performance.now() > deadline) throw new Error(output);
            // There is no tool that waits for output.
            await sleep(50);
        }
    }

    async function names() {
        return (await act('list_processes')).processes.map(process => process.name);
    }

    saw('processes', { names: await names() });
    const refusal = await call('start_process', { process_name: 'untrusted' });
    saw('refusal', { refused: refusal.isError, words: refusal.content[0].text });

    const web = await act('start_process', { process_name: 'web' });
    await shown('web', 'web is up');
    const terminal = await act('spawn_process', { kind: 'terminal', name: 'shell' });
    const keys = { process_id: terminal.id, input: 'echo $((6*7))', wait_ms: 250 };
    saw('delivery', { delivered: (await act('send_input', keys)).delivered });
    await shown('shell', '42');

    let progress = 0;
    const cancel = new AbortController();
    const onprogress = () => {
        progress += 1;
        if (progress === 2) cancel.abort('enough');
    };
    // The SDK tells the server.
    await call('wait_for_bound_port', { process_name: 'web' }, { onprogress, signal: cancel.signal }).catch(() => {});
    const { status, pid } = await act('get_process_status', { process_name: 'web' });
    saw('cancelled', { progress, status, is_the_same: pid === web.pid });

    saw('stopped', { status: (await act('stop_process', { process_name: 'web' })).status });
    await act('close_process', { process_id: terminal.id });
    saw('closed', { names: await names() });

    const stubborn = await act('start_process', { process_name: 'stubborn' });
    await shown('stubborn', 'stubborn is up');
    const left = await act('spawn_process', { kind: 'terminal', name: 'left' });
    saw('left', { pids: [stubborn.pid, left.pid] });
}
