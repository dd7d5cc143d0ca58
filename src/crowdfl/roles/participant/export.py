"""All that a device holds of one person's part in a task, for that person; without what is secret."""

import base64
from collections.abc import Mapping
from typing import Any

from crowdfl.roles.ports import Blobs

SECRET = ("keys", "bundle")  # whoever has one acts as this device, or opens what is sealed to it


def held(blobs: Blobs, task: str) -> dict[str, Any]:
    """By name; what is no text is in base 64."""
    names = sorted(blobs.listing())
    return {
        "task": task,
        "left out, as it is secret": [name for name in names if name in SECRET],
        "held": {name: _plain(blobs.get(name)) for name in names if name not in SECRET},
    }


def _plain(data: bytes) -> str | Mapping[str, str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
    return text if text.isprintable() or "\n" in text else {"base64": base64.b64encode(data).decode()}
