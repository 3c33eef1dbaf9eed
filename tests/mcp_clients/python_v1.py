"""The first major of the Python SDK: python_v1.py BINARY PROJECT."""

import asyncio
import time

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import McpError

from flow import play, saw, server


async def main():
    async with stdio_client(StdioServerParameters(**server())) as streams, ClientSession(*streams) as session:
        opened = await session.initialize()
        saw("connection", version=opened.protocolVersion, server=opened.serverInfo.name)
        tools = (await session.list_tools()).tools
        saw("tools", names=[tool.name for tool in tools], are_checked=all(tool.outputSchema for tool in tools))
        try:
            await session.call_tool("no_such_tool", {})
        except McpError as e:
            saw("error", code=e.error.code)

        async def call(tool, arguments):
            result = await session.call_tool(tool, arguments)
            return result.isError, result.content[0].text, result.structuredContent

        async def cancelled_wait(process):
            progress, enough = [], asyncio.Event()

            async def on_progress(done, total, message):
                progress.append(done)
                if len(progress) == 2:
                    enough.set()

            # This SDK sends no word when a call is given up, and tells nobody a request's id.
            request = session._request_id
            wait = session.call_tool("wait_for_bound_port", {"process_name": process}, progress_callback=on_progress)
            wait = asyncio.create_task(wait)
            await enough.wait()
            cancelled = types.CancelledNotification(params=types.CancelledNotificationParams(requestId=request))
            await session.send_notification(types.ClientNotification(cancelled))
            wait.cancel()
            await asyncio.gather(wait, return_exceptions=True)
            return len(progress)

        await play(call, cancelled_wait)
        ending = time.monotonic()
    saw("end", seconds=time.monotonic() - ending)


asyncio.run(main())
