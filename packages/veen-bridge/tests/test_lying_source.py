"""A source hub that lies: reordered, forged and forked logs are refused, and no bundle is written."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from veen_bridge.exporting.export import ExportedBundle, Exporter
from veen_bridge.exporting.planning import ExportWishes
from veen_bridge.roles.session import RoleKeys, open_session
from veen_core.api import StreamResponse
from veen_core.errors import VeenError
from veen_core.hub_log import HubProofResponse
from veen_core.ids import MmrRoot
from veen_hub.client import Diverged, Retry

from .source_zone import STREAM, SourceZone, run, unwatched

Alter = Callable[[bytes], bytes]


@asynccontextmanager
async def liar(url: str, path: str, alter: Alter) -> AsyncIterator[str]:
    """Serve a hub's answers on another port, with those of one path altered."""

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        headers = {
            name: request.headers[name] for name in ("Content-Type", "Accept") if name in request.headers
        }
        async with session.request(request.method, url + request.path_qs, data=body, headers=headers) as got:
            content = await got.read()
            if request.path == path and got.status == 200:
                content = alter(content)
            return web.Response(status=got.status, body=content, headers={"Content-Type": got.content_type})

    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{any:.*}", answer)
    runner = web.AppRunner(app)
    async with aiohttp.ClientSession() as session:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def export_from_liar(zone: SourceZone, path: str, alter: Alter) -> list[ExportedBundle]:
    async def work() -> list[ExportedBundle]:
        async with liar(zone.url, path, alter) as url:
            access = dataclasses.replace(zone.config.access, hub=url)
            config = dataclasses.replace(zone.config, access=access)
            retry = Retry(max_attempts=3, deadline=3.0)
            async with open_session(config, RoleKeys.load(config), retry=retry) as session:
                exporter = Exporter(session, zone.out, ExportWishes(timeout=5.0), unwatched)
                return [bundle async for bundle in exporter.export([STREAM])]

    return run(work())


def page(change: Callable[[StreamResponse], StreamResponse]) -> Alter:
    """Alter pages of the exported stream only: the audit log is short and stays honest."""

    def alter(content: bytes) -> bytes:
        answer = StreamResponse.decode(content)
        return change(answer).encode() if len(answer.items) >= 6 else content

    return alter


def reordered(answer: StreamResponse) -> StreamResponse:
    items = list(answer.items)
    items[1], items[2] = (
        dataclasses.replace(items[2], stream_seq=items[1].stream_seq),
        dataclasses.replace(items[1], stream_seq=items[2].stream_seq),
    )
    return dataclasses.replace(answer, items=tuple(items))


def forged(answer: StreamResponse) -> StreamResponse:
    items = list(answer.items)
    other = dataclasses.replace(
        items[3].msg, ciphertext=items[4].msg.ciphertext, ct_hash=items[4].msg.ct_hash
    )
    items[3] = dataclasses.replace(items[3], msg=other)
    return dataclasses.replace(answer, items=tuple(items))


def dropped(answer: StreamResponse) -> StreamResponse:
    return dataclasses.replace(answer, items=(*answer.items[:3], *answer.items[4:]))


@pytest.mark.parametrize("lie", [reordered, forged, dropped], ids=lambda lie: lie.__name__)
def test_a_page_that_lies_is_refused_and_no_bundle_is_written(
    zone: SourceZone, lie: Callable[[StreamResponse], StreamResponse]
) -> None:
    zone.send(8)
    zone.export()
    zone.send(8)
    before = sorted(path.name for path in zone.out.glob("*.veenb"))
    with pytest.raises(VeenError):
        export_from_liar(zone, "/v1/stream", page(lie))
    assert sorted(path.name for path in zone.out.glob("*.veenb")) == before
    honest = [(each.header.from_seq, each.header.to_seq) for each in zone.export()]
    assert (honest[0][0], honest[-1][1]) == (9, 16)
    assert all(after[0] == before[1] + 1 for before, after in pairwise(honest))


def test_a_hub_log_that_disagrees_with_the_label_is_refused(zone: SourceZone) -> None:
    def other_root(content: bytes) -> bytes:
        answer = HubProofResponse.decode(content)
        head = dataclasses.replace(answer.head, mmr_root=MmrRoot(bytes(32)))
        return dataclasses.replace(answer, head=head).encode()

    zone.send(8)
    with pytest.raises(VeenError, match="inclusion proof"):
        export_from_liar(zone, "/v1/hublog/proof", other_root)


def test_a_hub_that_came_back_from_an_old_copy_is_refused_with_evidence(
    zone: SourceZone, tmp_path: Any
) -> None:
    zone.send(3)
    zone.stop()
    shutil.copytree(zone.data, tmp_path / "old")
    zone.start()
    zone.write_bridge([STREAM])
    zone.send(3)
    zone.export()
    zone.stop()
    shutil.rmtree(zone.data)
    shutil.move(tmp_path / "old", zone.data)
    shutil.rmtree(zone.root / "writer")
    zone.start()
    zone.write_bridge([STREAM])
    zone.send(5)
    before = sorted(path.name for path in zone.out.glob("*.veenb"))
    with pytest.raises(Diverged) as found:
        zone.export()
    assert found.value.held
    assert found.value.shown or "no such entry any more" in str(found.value)
    assert sorted(path.name for path in zone.out.glob("*.veenb")) == before
