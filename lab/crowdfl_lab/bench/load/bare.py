"""What SP's acknowledgements are compared with: one FastAPI route over TLS that writes a body, fsyncs it, and says so.

`python -m crowdfl_lab.bench.load.bare FOLDER PORT CERTIFICATE KEY`
"""

import os
import sys
from pathlib import Path

import uvicorn
from anyio import to_thread
from fastapi import FastAPI, Request


def make_app(folder: Path) -> FastAPI:
    app = FastAPI()

    @app.put("/bodies/{name}", status_code=201)
    async def put(request: Request, name: str) -> dict[str, int]:
        body = await request.body()
        await to_thread.run_sync(write, folder / f"{int(name)}", body)
        return {"bytes": len(body)}

    def write(path: Path, body: bytes) -> None:
        with path.open("wb", buffering=0) as file:
            file.write(body)
            os.fsync(file.fileno())

    return app


if __name__ == "__main__":
    _folder, _port, _certificate, _key = sys.argv[1:]
    _app = make_app(Path(_folder))
    uvicorn.run(_app, port=int(_port), ssl_certfile=_certificate, ssl_keyfile=_key, log_config=None, access_log=False)
