"""Blobs in a bucket of a real S3 server: written once, read whole, sealed where they are keys."""

from collections.abc import Iterator

import pytest
from tests.storage.swift import CREDENTIALS, require_swift, serving_s3

from crowdfl.errors import Conflict, NotReady, PassphraseError, StoreUnavailable
from crowdfl.protocols.uploads import upload_digest
from crowdfl.roles.sp.aggregators import upload_name
from crowdfl.services.cluster.worker import Store, WorkPart, run_part
from crowdfl.settings import S3Settings
from crowdfl.storage.s3 import S3Blobs
from crowdfl.storage.sealed_blobs import SealedBlobs

pytestmark = pytest.mark.second
LONG = bytes(range(256)) * 8192  # 2 MB: read by way of a file


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Settings]:
    require_swift()
    with pytest.MonkeyPatch.context() as patch, serving_s3(tmp_path_factory.mktemp("swift")) as found:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield found


def test_blobs_in_a_bucket_are_as_those_in_a_folder(bucket: S3Settings):
    blobs, again = S3Blobs(bucket, "one"), S3Blobs(bucket, "one")
    blobs.put_all({"t/1/a": b"\x00one", "t/1/b": LONG, "t/10": b"", "t.sp": b"x"})
    again.put_all({"t/1/a": b"\x00one", "t/1/b": LONG})
    assert again.get("t/1/a") == b"\x00one"
    with again.open("t/1/b") as file:
        blobs.delete("t/1/b")
        blobs.delete("t/1/b")
        assert (file.read(3), len(file.read())) == (b"\x00\x01\x02", len(LONG) - 3)
    with pytest.raises(Conflict):
        again.put("t/1/a", b"other")
    assert S3Blobs(bucket, "two").listing() == {}
    assert set(blobs.listing()) == {"t/1/a", "t/10", "t.sp"}
    blobs.clear("t/1")
    assert sorted(blobs.listing()) == ["t.sp", "t/10"]
    assert not blobs.has("t/1/a")
    with pytest.raises(NotReady):
        blobs.get("t/1/a")


def test_a_worker_of_a_cluster_reads_uploads_from_the_roles_bucket(bucket: S3Settings):
    class Joined:
        def run(self, read):
            return read(name)

    blobs, upload = S3Blobs(bucket, "blobs"), b"an upload"
    name = upload_name("task", 1, upload_digest(upload))
    blobs.put(name, upload)
    assert run_part(WorkPart(Joined(), Store(bucket, blobs.name()))) == upload  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable, match=r"the worker on .* another database"):
        run_part(WorkPart(Joined(), Store(bucket, "f" * 32)))  # type: ignore[arg-type]


def test_keys_in_a_bucket_open_with_their_passphrase_alone(bucket: S3Settings):
    SealedBlobs(S3Blobs(bucket, "keys"), "right", 4).put("t.sp", b"a share")
    assert SealedBlobs(S3Blobs(bucket, "keys"), "right").get("t.sp") == b"a share"
    assert b"a share" not in S3Blobs(bucket, "keys").get("t.sp")
    with pytest.raises(PassphraseError):
        SealedBlobs(S3Blobs(bucket, "keys"), "wrong")


def test_a_bucket_of_another_store_and_one_that_is_not_there_are_named(bucket: S3Settings):
    mine = S3Blobs(bucket, "mine")
    mine.bind(mine.name())
    with pytest.raises(StoreUnavailable, match="another database"):
        S3Blobs(bucket, "mine").bind("f" * 32)
    with pytest.raises(StoreUnavailable, match="another database"):
        S3Blobs(bucket, "nobody's").bind("f" * 32)
    with pytest.raises(StoreUnavailable, match="no bucket none"):
        S3Blobs(bucket.changed(bucket="none"), "x").put("a", b"")
