from __future__ import annotations

import io
from pathlib import Path

import pytest
import zstandard

from veen_core.entry import split_frames
from veen_core.ids import StreamSeq
from veen_core.limits import Limits
from veen_storage.chunks import compression
from veen_storage.chunks.chunk_files import ChunkFile
from veen_storage.disk.files import Files
from veen_storage.errors import DamageError
from veen_storage.store import Store

from .conftest import MakeStore
from .sample import ORDERS, send, tree

WIDE = Limits(max_chunk_bytes=2 * 1_048_576, max_msg_bytes=65_536, max_checkpoint_interval=40)


def seq(number: int) -> StreamSeq:
    return StreamSeq(number)


@pytest.fixture
def pair(make_store: MakeStore) -> tuple[Store, Store]:
    """The same log, once compressed and once not: 40 entries of 20 kB, several blocks, then 5 more."""
    stores = make_store("packed", zstd_level=3, limits=WIDE), make_store("plain", limits=WIDE)
    for store in stores:
        for n in range(45):
            send(store, ORDERS, body=f"{n} ".encode() * 7_000)
        store.apply()
    return stores


def chunk(store: Store) -> Path:
    return store.layout.chunk(ORDERS, seq(1), seq(40))


def test_only_sealed_chunks_are_compressed(pair: tuple[Store, Store]) -> None:
    packed, plain = (tree(store.layout.log) for store in pair)
    different = {name for name in packed if packed[name] != plain[name]}
    assert packed.keys() == plain.keys()
    assert different == {chunk(pair[0]).name}
    assert len(packed[chunk(pair[0]).name]) < len(plain[chunk(pair[1]).name]) // 10


def test_any_zstd_decoder_gives_the_concatenated_frames(pair: tuple[Store, Store]) -> None:
    packed, plain = chunk(pair[0]).read_bytes(), chunk(pair[1]).read_bytes()
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed), read_across_frames=True) as reader:
        decoded = reader.read()
    assert decoded == plain
    assert [entry.stream_seq for entry in split_frames(decoded)] == list(range(1, 41))


def test_readers_see_identical_bytes(pair: tuple[Store, Store]) -> None:
    packed, plain = pair
    for start in (1, 7, 39, 40, 41, 45):
        assert packed.read.entries(ORDERS, seq(start), 50) == plain.read.entries(ORDERS, seq(start), 50)


def test_any_range_of_a_compressed_chunk_reads_like_the_plain_chunk(pair: tuple[Store, Store]) -> None:
    raw = chunk(pair[1]).read_bytes()
    block = compression.BLOCK_BYTES
    assert len(raw) > 3 * block
    with ChunkFile(chunk(pair[0]), compressed=True) as packed:
        assert packed.size == len(raw)
        for offset in (0, 1, block - 1, block, block + 1, 2 * block - 5, len(raw) - 1, len(raw)):
            for length in (0, 1, 10, block, 2 * block + 3):
                if offset + length <= len(raw):
                    assert packed.read(offset, length) == raw[offset : offset + length]
        with pytest.raises(DamageError, match="ends after"):
            packed.read(len(raw) - 1, 2)
        walked = list(packed.walk())
    with ChunkFile(chunk(pair[1]), compressed=False) as plain:
        assert walked == list(plain.walk())


def test_the_same_chunk_compresses_to_the_same_bytes(pair: tuple[Store, Store]) -> None:
    again = b"".join(compression.compress(chunk(pair[1]), 3))
    assert again == chunk(pair[0]).read_bytes()


@pytest.mark.parametrize("place", ["first-block", "seek-table", "footer"])
def test_any_damage_makes_the_chunk_unreadable(pair: tuple[Store, Store], place: str) -> None:
    store, path = pair[0], chunk(pair[0])
    content = bytearray(path.read_bytes())
    content[{"first-block": 100, "seek-table": -20, "footer": -2}[place]] ^= 0x10
    path.write_bytes(bytes(content))
    with pytest.raises(DamageError, match=path.name):
        store.read.entries(ORDERS, seq(1), 40)


@pytest.mark.parametrize("length", [0, 5, 9, 200], ids=["empty", "shorter", "footer", "cut"])
def test_a_truncated_compressed_chunk_is_damage(pair: tuple[Store, Store], length: int) -> None:
    path = chunk(pair[0])
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DamageError), ChunkFile(path, compressed=True) as packed:
        packed.read(0, 100)


def test_a_crash_while_compressing_is_finished_at_the_next_opening(make_store: MakeStore) -> None:
    class Stops(Files):
        def rename(self, source: Path, target: Path) -> None:
            if target.suffix == ".log":
                raise OSError("the machine stops")
            super().rename(source, target)

    store = make_store(zstd_level=3, files=Stops())
    send(store, ORDERS, 10)
    with pytest.raises(OSError, match="stops"):
        store.apply()
    assert not store.layout.chunk(ORDERS, seq(1), seq(8)).exists()
    store.close()
    store = make_store()
    assert store.layout.chunk(ORDERS, seq(1), seq(8)).exists()
    assert not store.layout.chunk(ORDERS, seq(1), None).exists()
    assert not list(store.layout.log.glob("*.tmp"))
    assert [entry.receipt.stream_seq for entry in store.read.entries(ORDERS, seq(1), 20)] == list(
        range(1, 11)
    )


@pytest.mark.parametrize("damaged", ["as it grew", "compressed"])
def test_if_a_chunk_exists_twice_the_complete_file_is_kept(make_store: MakeStore, damaged: str) -> None:
    """A crash after the compressed one got its name, and before the other was removed."""

    class Stops(Files):
        def remove(self, path: Path) -> None:
            if path.suffix == ".open":
                raise OSError("the machine stops")
            super().remove(path)

    store = make_store(zstd_level=3, files=Stops())
    send(store, ORDERS, 10)
    with pytest.raises(OSError, match="stops"):
        store.apply()
    store.close()
    final, growing = (store.layout.chunk(ORDERS, seq(1), end) for end in (seq(8), None))
    whole, path = final.read_bytes(), growing if damaged == "as it grew" else final
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(bytes(content))
    make_store()
    assert final.read_bytes() == whole
    assert not growing.exists()
