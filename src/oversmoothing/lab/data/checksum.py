"""The checksums that identify data in results and file names."""

import hashlib


def short_sha256(content: bytes) -> str:
    """The first twelve hex digits of the SHA-256."""
    return hashlib.sha256(content).hexdigest()[:12]
