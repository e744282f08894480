"""A small hub for the tests, run as a process of its own: `python server.py FOLDER` prints its port.

FOLDER/state.json, read again at each request, says what it serves and how it misbehaves; FOLDER/log.jsonl gets a line
for each request. Only what the hub documents: the listing at /api/models/ORG/NAME/revision/REV, files at
/ORG/NAME/resolve/COMMIT/FILE with Range and redirects.
"""

import hashlib
import json
import sys
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(sys.argv[1])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        entry = {"method": self.command, "path": path, "host": self.headers["Host"]}
        entry |= {key.lower(): value for key, value in self.headers.items()}
        with open(FOLDER / "log.jsonl", "a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")
        state = json.loads((FOLDER / "state.json").read_text(encoding="utf-8"))
        for prefix, status in state["statuses"].items():
            if path.startswith(prefix):
                return self.refuse(status, state["error_code"])
        is_known = self.headers.get("Authorization") == f"Bearer {state['token']}"
        if state["token"] is not None and not is_known and not path.startswith("/elsewhere/"):
            return self.refuse(401, state["error_code"])
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self.listing(state, "/".join(parts[2:4]), parts[5] if len(parts) > 5 else "main")
        elif parts[0] == "elsewhere":
            self.content(state, parts[1])
        elif len(parts) > 4 and parts[2] == "resolve":
            self.resolve(state, "/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            self.refuse(404, None)

    do_HEAD = do_GET

    def refuse(self, status: int, error_code: "str | None") -> None:
        self.send_response(status)
        if error_code:
            self.send_header("X-Error-Code", error_code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def listing(self, state: dict, repo: str, revision: str) -> None:
        found = state["repos"].get(repo)
        if found is None:
            return self.refuse(404, "RepoNotFound")
        if revision not in ("main", found["commit"]):
            return self.refuse(404, "RevisionNotFound")
        siblings = []
        for name, file in found["files"].items():
            sibling = {"rfilename": name, "size": file["listed_bytes"], "blobId": file["git"]}
            if file["is_lfs"]:
                sibling["lfs"] = {"sha256": file["listed_sha256"], "size": file["listed_bytes"], "pointerSize": 130}
            siblings.append(sibling)
        answer = {
            "id": repo,
            "modelId": repo,
            "sha": found["commit"],
            "siblings": siblings,
            "tags": [],
            "private": False,
        }
        body = json.dumps(answer).encode() if not state["garbage"] else state["garbage"].encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def resolve(self, state: dict, repo: str, revision: str, name: str) -> None:
        found = state["repos"].get(repo, {"commit": None, "files": {}})
        if revision != found["commit"] or name not in found["files"]:
            return self.refuse(404, "EntryNotFound")
        file = found["files"][name]
        if state["redirect_to"] and file["is_lfs"]:
            self.send_response(302)
            self.send_header("Location", f"{state['redirect_to']}/elsewhere/{file['git']}")
            self.send_header("X-Repo-Commit", found["commit"])
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.content(state, file["git"])

    def content(self, state: dict, key: str) -> None:
        body = (FOLDER / key).read_bytes()
        begin = 0
        asked = self.headers.get("Range")
        if asked and state["knows_ranges"]:
            begin = int(asked.removeprefix("bytes=").split("-")[0])
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - begin))
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.end_headers()
        if self.command == "HEAD":
            return
        piece_bytes = 1 << 16
        sent = 0
        for start in range(begin, len(body), piece_bytes):
            if state["drop_after"] is not None and sent >= state["drop_after"]:
                self.close_connection = True
                return
            piece = body[start : start + piece_bytes]
            try:
                self.wfile.write(piece)
            except OSError:  # the client has gone
                self.close_connection = True
                return
            sent += len(piece)
            time.sleep(state["pause_s"])


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()
