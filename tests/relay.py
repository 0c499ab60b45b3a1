"""A network that can be cut: what goes through a relay stands still, and neither end is told. No packet that says so
(FIN, RST) gets through, as with a cable that is pulled; what was on its way arrives when it is mended."""

import asyncio
import threading
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit


class Relay:
    """Takes connections at its address, and hands on to another address what they say, both ways."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: str) -> None:
        self._loop, self._target = loop, urlsplit(target)
        self._is_whole = asyncio.Event()
        self._is_whole.set()
        self._open = set[asyncio.StreamWriter]()
        self.address = ""

    async def listen(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._is_whole.clear)

    def mend(self) -> None:
        self._loop.call_soon_threadsafe(self._is_whole.set)

    def reset(self) -> None:
        """End the connections that there are, as the two kernels do of which each has waited too long for the other."""
        self._loop.call_soon_threadsafe(self._abort)

    def _abort(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._is_whole.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        except OSError:  # nobody is there
            writer.close()
            return
        both = {writer, far_writer}
        self._open |= both
        await asyncio.gather(self._hand_on(reader, far_writer), self._hand_on(far_reader, writer))
        self._open -= both

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one end closes, which the other is told, too."""
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._is_whole.wait()
                writer.write(data)
                await writer.drain()
        if not writer.transport.is_closing():
            await self._is_whole.wait()
        writer.close()


class Relays:
    """Relays, in a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "Relays":
        self._thread.start()
        return self

    def to(self, address: str) -> Relay:
        relay = Relay(self._loop, address)
        asyncio.run_coroutine_threadsafe(relay.listen(), self._loop).result(timeout=30)
        return relay

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(timeout=30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @staticmethod
    async def _end() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
