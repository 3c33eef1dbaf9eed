"""What a client of either Python SDK does with a project, whatever the SDK calls it. What it sees goes to standard output, one
JSON object a line; whether that is right is for tests/mcp_clients.rs to say. The SDKs hold each result against its schema."""

import asyncio
import json
import logging
import os
import sys
import time

# What an SDK complains of goes to standard error, and fails the test.
logging.basicConfig(level=logging.WARNING)

PATIENCE = 30


def saw(what, **details):
    print(json.dumps({"saw": what, **details}), flush=True)


def server():
    """How the server is started: its program, its arguments, and its environment on top of the SDK's usual one."""
    binary, project = sys.argv[1:3]
    return {
        "command": binary,
        "args": ["mcp", "--project", project],
        "env": {name: value for name, value in os.environ.items() if name.startswith("XDG_")},
    }


async def play(call, cancelled_wait):
    """Plays all. `call` takes a tool and its arguments, and returns whether it was refused, its words and its data;
    `cancelled_wait` calls wait_for_bound_port on a process, cancels that after some notifications of progress, and returns
    how many there were."""

    async def do(tool, **arguments):
        refused, words, data = await call(tool, arguments)
        assert not refused, (tool, words)
        return data

    async def shown(process, end):
        """Waits until a row ends with this: a shell may have shown its prompt before it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            output = (await do("get_process_output", process_name=process))["output"]
            if row := next((row for row in output.splitlines() if row.endswith(end)), None):
                return saw("output", process=process, row=row)
            assert time.monotonic() < deadline, output
            # There is no tool that waits for output.
            await asyncio.sleep(0.05)

    listed = await do("list_processes")
    saw("processes", names=[process["name"] for process in listed["processes"]])
    refused, words, _ = await call("start_process", {"process_name": "untrusted"})
    saw("refusal", refused=refused, words=words)

    web = await do("start_process", process_name="web")
    await shown("web", "web is up")
    terminal = await do("spawn_process", kind="terminal", name="shell")
    sent = await do("send_input", process_id=terminal["id"], input="echo $((6*7))", wait_ms=250)
    saw("delivery", delivered=sent["delivered"])
    await shown("shell", "42")

    progress = await cancelled_wait("web")
    status = await do("get_process_status", process_name="web")
    saw("cancelled", progress=progress, status=status["status"], is_the_same=status["pid"] == web["pid"])

    saw("stopped", status=(await do("stop_process", process_name="web"))["status"])
    await do("close_process", process_id=terminal["id"])
    listed = await do("list_processes")
    saw("closed", names=[process["name"] for process in listed["processes"]])

    stubborn = await do("start_process", process_name="stubborn")
    await shown("stubborn", "stubborn is up")
    left = await do("spawn_process", kind="terminal", name="left")
    saw("left", pids=[stubborn["pid"], left["pid"]])
