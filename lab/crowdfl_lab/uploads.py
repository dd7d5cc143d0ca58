"""The ciphertexts in an upload of a profile with a key, signed or not."""

from crowdfl.protocols.hardened.manifest import HardenedUpload
from crowdfl.protocols.messages import Message


def ciphertexts_in(upload: bytes) -> bytes:
    is_signed = upload.startswith(b"CFLM") and Message.kind_of(upload) == HardenedUpload.kind
    return HardenedUpload.parse(upload).numbers if is_signed else upload
