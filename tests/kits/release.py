"""Unpacked releases and a real HTTP server that publishes newer ones."""

from __future__ import annotations

import hashlib
import json
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs

from nedura.installs import InstallPaths, install_id_for
from nedura.product import NEDURA
from nedura.testing.installs import Content, Origin, Site, write_files
from nedura.update.commit.zip_tree import tree_hashes
from nedura.update.source.release import Note, index_of, pack_release, read_note
from tests.kits.checkout import CheckoutWorld, launcher
from tests.kits.site import quick_tree


@attrs.frozen
class Reply:
    """One prepared answer. `claims` is the length that it states; less than that is sent before the connection is cut, `stall` seconds
    later.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict)
    claims: int = -1
    stall: float = 0.0


@attrs.define
class Shelf:
    """A publisher: paths and what they answer, and what was asked."""

    folder: Path
    replies: dict[str, Reply] = attrs.field(factory=dict)
    asked: list[str] = attrs.field(factory=list)
    url: str = ""

    def pack(self, files: Mapping[str, Content], version: str, **changes: Any) -> tuple[bytes, Note]:
        """A release of these files, and its note."""
        tree = Path(tempfile.mkdtemp(dir=self.folder))
        write_files(tree, files)
        note = Note(
            commit=hashlib.sha1(version.encode(), usedforsecurity=False).hexdigest(),
            version=version,
            archive=f"{self.url}/latest.json",
            files=tree_hashes(tree),
        )
        note = attrs.evolve(note, **changes)
        archive = tree.parent / f"nedura-{version}.zip"
        pack_release(tree, note, archive)
        return archive.read_bytes(), note

    def publish(self, files: Mapping[str, Content], version: str, **changes: Any) -> Note:
        """Pack a release and make it the newest one."""
        data, note = self.pack(files, version, **changes)
        archive = self.folder / f"nedura-{version}.zip"
        self.replies[f"/{archive.name}"] = Reply(data)
        self.index(index_of(archive, note))
        return note

    def index(self, value: object) -> None:
        """What the index says."""
        self.replies["/latest.json"] = Reply(json.dumps(value).encode())

    def offered(self) -> dict[str, Any]:
        """What it says now."""
        value: dict[str, Any] = json.loads(self.replies["/latest.json"].body)
        return value

    def publish_bytes(self, data: bytes, note: Note) -> None:
        """Publish exactly these bytes as an archive."""
        self.replies["/odd.zip"] = Reply(data)
        self.index(
            {
                "schema": 1,
                "version": note.version,
                "commit": note.commit,
                "archive": "odd.zip",
                "sha256": hashlib.sha256(data).hexdigest(),
                "size": len(data),
            }
        )


@contextmanager
def shelf(folder: Path) -> Iterator[Shelf]:
    """A publisher on a port of this machine."""
    made = Shelf(folder)
    folder.mkdir(parents=True, exist_ok=True)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            made.asked.append(self.path)
            reply = made.replies.get(self.path, Reply(status=404))
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(reply.claims if reply.claims >= 0 else len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)
            if reply.claims >= 0:
                self.wfile.flush()
                time.sleep(reply.stall)
                self.close_connection = True

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@attrs.define
class ReleaseWorld(CheckoutWorld):
    """A world whose command runs straight from an unpacked release."""

    shelf: Shelf = attrs.field(kw_only=True)

    def note(self) -> Note:
        """What the live tree says about itself."""
        note = read_note(self.tree)
        assert note is not None
        return note

    def unpack(self, data: bytes) -> None:
        """As a person unpacks a release."""
        archive = self.folder / "first.zip"
        archive.write_bytes(data)
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(self.tree)


def build(folder: Path, publisher: Shelf, tree: Mapping[str, Content], version: str) -> ReleaseWorld:
    """An unpacked release of a tree in a folder of its own."""
    (folder / "tmp").mkdir(mode=0o700)
    live, home = folder / "app", folder / "home"
    live.mkdir()
    home.mkdir(mode=0o700)
    launcher(folder, live)
    site = Site(
        origin=Origin(folder / "none"),
        checkout=live,
        home=home,
        paths=InstallPaths(home, install_id_for(live)),
        product=attrs.evolve(NEDURA, environment="none"),
    )
    made = ReleaseWorld(folder, site, shelf=publisher)
    data, _ = publisher.pack(tree, version)
    made.unpack(data)
    return made


@contextmanager
def release_world(tree: Mapping[str, Content] | None = None) -> Iterator[ReleaseWorld]:
    """A release world (version 1.0.0) with its publisher, ended and removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="nw-"))
    with shelf(folder / "shelf") as publisher:
        made = build(folder, publisher, quick_tree() if tree is None else tree, "1.0.0")
        try:
            yield made
        finally:
            made.close()
