"""The second major of the Python SDK: python_v2.py BINARY PROJECT MODE."""

import asyncio
import sys
import time

from mcp import Client, MCPError, StdioServerParameters

from flow import play, saw, server


async def main():
    async with Client(StdioServerParameters(**server()), mode=sys.argv[3]) as client:
        tools = (await client.list_tools()).tools
        # A client that asks nothing before it begins does not know who the server is.
        saw("connection", version=client.protocol_version, server=getattr(client.server_info, "name", None))
        saw("tools", names=[tool.name for tool in tools], are_checked=all(tool.output_schema for tool in tools))
        try:
            await client.call_tool("no_such_tool", {})
        except MCPError as e:
            saw("error", code=e.error.code)

        async def call(tool, arguments):
            result = await client.call_tool(tool, arguments)
            return result.is_error, result.content[0].text, result.structured_content

        async def cancelled_wait(process):
            progress, enough = [], asyncio.Event()

            async def on_progress(done, total, message):
                progress.append(done)
                if len(progress) == 2:
                    enough.set()

            wait = client.call_tool("wait_for_bound_port", {"process_name": process}, progress_callback=on_progress)
            wait = asyncio.create_task(wait)
            await enough.wait()
            # The SDK tells the server.
            wait.cancel()
            await asyncio.gather(wait, return_exceptions=True)
            return len(progress)

        await play(call, cancelled_wait)
        ending = time.monotonic()
    saw("end", seconds=time.monotonic() - ending)


asyncio.run(main())
