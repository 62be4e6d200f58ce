"""What the broker answers at `/`: the console to browsers, and the Atom feed to administration clients, as before."""

from __future__ import annotations

import gzip
import hashlib
import re

import pytest

from protocol.http.console.console_routes import BASE, FOLDER
from tests.http.client import request
from tests.support.server import ROOT, BrokerProcess, root_token

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
FILES = sorted(one.relative_to(FOLDER).as_posix() for one in FOLDER.rglob("*") if one.is_file())
VENDORED = {
    # htm 3.1.1 from npm, the file preact/standalone.module.js: htm and Preact with hooks.
    "vendor/htm-preact.module.js": "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7",
}


@pytest.fixture(scope="module")
def port():
    with BrokerProcess() as running:
        yield running.http_port


def test_a_browser_gets_the_page(port):
    answer = request(port, "GET", "/", headers=HTML)
    assert (200, "text/html; charset=utf-8") == (answer.status, answer.headers["Content-Type"])
    assert "<title>Peeklock</title>" in answer.text


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/", {"Accept": "*/*"}),
        ("/", {"Accept": "application/atom+xml"}),
        ("/?api-version=2021-05", HTML),
        ("/?$skip=0&$top=1&api-version=2017-04", {}),
        ("/", HTML | {"Authorization": root_token()}),
    ],
)
def test_an_administration_client_gets_the_feed(port, path, headers):
    answer = request(port, "GET", path, headers=headers)
    assert (200, True) == (answer.status, answer.body.startswith(b"<feed"))


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_served_compressed_and_checked_again(port, name):
    path = f"{BASE}/{name}"
    plain = request(port, "GET", path)
    assert (FOLDER / name).read_bytes() == plain.body
    small = request(port, "GET", path, headers={"Accept-Encoding": "gzip, br"})
    assert ("gzip", plain.body) == (small.headers["Content-Encoding"], gzip.decompress(small.body))
    again = request(port, "GET", path, headers={"If-None-Match": plain.headers["ETag"]})
    assert (304, b"") == (again.status, again.body)


@pytest.mark.parametrize(
    "name", ["nothing.js", "../console_routes.py", "..%2f__init__.py", "pages"]
)
def test_nothing_else_is_served(port, name):
    assert 404 == request(port, "GET", f"{BASE}/{name}").status


def test_nothing_from_elsewhere_is_loaded_or_run(port):
    """The policy allows scripts and styles of the broker only, none inline, and the page needs no more."""
    for path in ("/", f"{BASE}/app.js", f"{BASE}/nothing.js"):
        headers = request(port, "GET", path, headers=HTML).headers
        policy = dict(one.split(" ", 1) for one in headers["Content-Security-Policy"].split("; "))
        assert ("'none'", "'self'", "'self'") == (
            policy["default-src"],
            policy["script-src"],
            policy["style-src"],
        )
        assert "'none'" == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"]
        assert ("nosniff", "DENY") == (
            headers["X-Content-Type-Options"],
            headers["X-Frame-Options"],
        )
    page = request(port, "GET", "/", headers=HTML).text
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page)
    assert all(
        one.startswith("/$peeklock/console/") for one in re.findall(r'(?:src|href)="([^"]*)"', page)
    )
    for name in FILES:
        if name.endswith((".js", ".css")):
            text = (FOLDER / name).read_text()
            assert not re.search(r"\beval\(|new Function|dangerouslySetInnerHTML=", text), name
            assert (
                not re.search(r"innerHTML|insertAdjacentHTML|document\.write", text)
                or "vendor/" in name
            ), name
            assert not re.search(r"""(?:from|import\(?|url\()\s*["']?https?:""", text), name


@pytest.mark.parametrize("name", VENDORED)
def test_what_others_wrote_is_as_they_published_it(name):
    assert VENDORED[name] == hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()
    assert {"vendor/LICENSE-htm.txt", "vendor/LICENSE-preact.txt"} <= set(FILES)


def test_modules_of_the_first_view_are_loaded_at_once():
    """The page names them all, so that the browser does not find them one after the other."""
    named = set(
        re.findall(
            r'modulepreload" href="/\$peeklock/console/([^"]*)"',
            (FOLDER / "index.html").read_text(),
        )
    )
    needed, waiting = set(), ["app.js"]
    while waiting:
        name = waiting.pop()
        for found in re.findall(
            r'^import .*? from "([^"]+)";', (FOLDER / name).read_text(), re.MULTILINE
        ):
            path = (FOLDER / name).parent.joinpath(found).resolve().relative_to(FOLDER).as_posix()
            if path not in needed:
                needed.add(path)
                waiting.append(path)
    assert needed == named


def test_the_pictures_of_the_pages_are_there_and_small():
    """`make screenshots` makes them."""
    for name in ("console-overview", "console-message"):
        content = (ROOT / "docs" / "images" / f"{name}.png").read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) <= 100_000
    assert "docs/images/console-overview.png" in (ROOT / "README.md").read_text()
