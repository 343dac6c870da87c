"""Raw files: verified, downloaded, or asked for in one line. Mirrors are file:// addresses."""

import hashlib
import urllib.request
from pathlib import Path

import pytest
from in_process import here

from oversmoothing.errors import InputError
from oversmoothing.lab.data import fetch
from oversmoothing.lab.data.fetch import Source, ensure

CONTENT = {"a": b"alpha" * 100, "b": b"beta" * 100}
HASHES = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}


def folder_with(path: Path, **changes: bytes) -> Path:
    path.mkdir()
    for name, content in (CONTENT | changes).items():
        (path / name).write_bytes(content)
    return path


@pytest.fixture
def mirror(tmp_path) -> Path:
    return folder_with(tmp_path / "mirror")


@pytest.fixture
def no_urls(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


def read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("change", [None, CONTENT["b"][:-1], b"x" + CONTENT["b"][1:]])
def test_files_that_are_there_are_verified_and_left(tmp_path, no_urls, change):
    folder = folder_with(tmp_path / "data", **({} if change is None else {"b": change}))
    sources = [Source(["https://nowhere.invalid"], HASHES)]
    if change is None:
        ensure(sources, folder)
        return
    with pytest.raises(InputError, match="altered or truncated") as caught:
        ensure(sources, folder)
    got = hashlib.sha256(change).hexdigest()
    for part in (str(folder / "b"), HASHES["b"][:12], got[:12]):
        assert part in str(caught.value)
    assert read(folder)["b"] == change


def test_a_missing_file_comes_from_the_first_mirror_that_is_right(tmp_path, mirror):
    wrong = folder_with(tmp_path / "wrong", a=b"not alpha")
    folder = tmp_path / "deep" / "data"
    with pytest.raises(InputError, match="1 mirrors gave a: other content"):
        ensure([Source([wrong.as_uri()], HASHES)], folder)
    assert read(folder) == {}
    urls = [(tmp_path / "absent").as_uri(), wrong.as_uri(), mirror.as_uri()]
    ensure([Source(urls, HASHES)], folder)
    assert read(folder) == CONTENT


def test_offline_never_asks(tmp_path, mirror, no_urls, monkeypatch):
    monkeypatch.setenv("OVERSMOOTHING_OFFLINE", "1")
    with pytest.raises(InputError, match="OVERSMOOTHING_OFFLINE=1 .* put there: a, b from file:"):
        ensure([Source([mirror.as_uri()], HASHES)], tmp_path / "data")


def test_the_catalogue_is_complete():
    catalogue = fetch.catalogue()
    assert len(catalogue) == 7
    for folder, sources in catalogue.items():
        files = [name for source in sources for name in source.files]
        count = {"raw": 8, "geom-gcn": 18, "geom_gcn": 12, "heterophilous": 8}
        parts = folder.split("/")
        assert len(set(files)) == count[parts[2] if len(parts) == 4 else parts[-1]]
        for source in sources:
            assert len(source.urls) >= 2
            assert all(url.startswith("https://") for url in source.urls)
            assert all(len(sha) == 64 for sha in source.files.values())


def test_real_files_match_the_catalogue(data_root, no_urls):
    for folder, sources in fetch.catalogue().items():
        ensure(sources, data_root / "graphs" / folder)


def test_the_checksum_sees_every_file():
    base = fetch.checksum([Source([], HASHES)])
    assert base == fetch.checksum([Source(["https://other.invalid"], HASHES)])
    for name in HASHES:
        assert base != fetch.checksum([Source([], HASHES | {name: "0" * 64})])


def test_the_command_prints_one_line_a_data_set(data_root, no_urls, monkeypatch, capsys):
    assert here(["data", "cora", "korra", "--root", str(data_root)], monkeypatch) == 2
    printed = capsys.readouterr()
    assert printed.out == f"cora: 26 files verified under {data_root / 'graphs'}\n"
    assert printed.err.startswith("error: korra: ") and "did you mean 'cora'" in printed.err
