"""peers.json: what other implementations took, each under its own name."""

import json
import os
import pathlib


def keep(path: pathlib.Path, peer: str, result: dict) -> None:
    """Replaces what the file has under `peer`; the file is whole at any moment."""
    peers = json.loads(path.read_text()) if path.exists() else {}
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps({**peers, peer: result}, indent=1) + "\n")
    os.replace(part, path)
