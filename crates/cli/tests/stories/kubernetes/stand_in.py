"""A stand-in for a Kubernetes API server: lists and watches of four kinds, over TLS, as kube-apiserver answers them.

    stand_in.py CERTIFICATE KEY STATE PORT-FILE

Objects, tokens and the last version are kept in the file STATE over restarts. POST /stand-in has one command as JSON:

    {"put": KIND, "object": {...}}     adds or replaces an object
    {"delete": KIND, "name": "NS/NAME"}
    {"forget": true}                   watches that begin before now get 410 Gone, as after a compaction
    {"cut": true}                      every watch is cut in the middle of its next line
    {"tokens": ["..."]}                the tokens that are accepted from now on; others get 401 Unauthorized
    {"deny": KIND} / {"deny": null}    requests for this kind get 403 Forbidden
"""

import json
import os
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

CERTIFICATE, KEY, STATE, PORT_FILE = sys.argv[1:]
KINDS = {
    "/api/v1/pods": ("pods", "v1", "Pod"),
    "/api/v1/persistentvolumeclaims": ("persistentvolumeclaims", "v1", "PersistentVolumeClaim"),
    "/apis/storage.k8s.io/v1/storageclasses": ("storageclasses", "storage.k8s.io/v1", "StorageClass"),
    "/apis/storage.k8s.io/v1/volumeattributesclasses": ("volumeattributesclasses", "storage.k8s.io/v1", "VolumeAttributesClass"),
}
# Objects of a page, so that lists have several.
PAGE = 2

changed = threading.Condition()
state = {"version": 1000, "oldest": 0, "objects": {}, "tokens": [], "deny": None, "missing": []}
# Events after the start: (version, kind, type, object).
events = []
cuts = 0


def keep():
    with open(STATE + ".new", "w", encoding="utf-8") as file:
        json.dump(state, file)
    os.rename(STATE + ".new", STATE)


def name(thing):
    meta = thing["metadata"]
    return "/".join(filter(None, [meta.get("namespace"), meta["name"]]))


def command(order):
    global cuts
    if "put" in order or "delete" in order:
        kind = order.get("put") or order["delete"]
        of_kind = state["objects"].setdefault(kind, {})
        state["version"] += 1
        if "put" in order:
            thing = order["object"]
            what = "MODIFIED" if name(thing) in of_kind else "ADDED"
            of_kind[name(thing)] = thing
        else:
            what, thing = "DELETED", of_kind.pop(order["name"])
        thing["metadata"]["resourceVersion"] = str(state["version"])
        events.append((state["version"], kind, what, thing))
    if order.get("forget"):
        # The version has moved on past all that clients have seen.
        state["version"] += 1
        state["oldest"] = state["version"]
        cuts += 1
    if order.get("cut"):
        cuts += 1
    for key in ("tokens", "deny", "missing"):
        if key in order:
            state[key] = order[key]
    keep()
    changed.notify_all()


def status(code, reason, message):
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code,
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with changed:
            command(order)
        self.answer(200, {})

    def do_GET(self):
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        kind, version, singular = KINDS.get(url.path, (None, None, None))
        with changed:
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if token not in state["tokens"]:
                return self.answer(401, status(401, "Unauthorized", "Unauthorized"))
            if kind is None or kind in state["missing"]:
                return self.answer(404, status(404, "NotFound", "the server could not find the requested resource"))
            verb = "watch" if query.get("watch") in ("1", "true") else "list"
            node = query.get("fieldSelector", "").removeprefix("spec.nodeName=")
            if kind == state["deny"] or (kind == "pods" and not node):
                group = version.rpartition("/")[0]
                of_group = f"{kind}.{group}" if group else kind
                message = (
                    f'{of_group} is forbidden: User "system:serviceaccount:parda:parda-steer" cannot '
                    f'{verb} resource "{kind}" in API group "{group}" at the cluster scope'
                )
                return self.answer(403, status(403, "Forbidden", message))
        if verb == "watch":
            return self.watch(kind, query, node, singular, version)
        with changed:
            things = [t for t in state["objects"].get(kind, {}).values() if self.selects(kind, t, node)]
            begin = int(query.get("continue", "0"))
            page = min(int(query.get("limit", "500")), PAGE)
            meta = {"resourceVersion": str(state["version"])}
            if begin + page < len(things):
                meta |= {"continue": str(begin + page)} | ({} if node else {"remainingItemCount": len(things) - begin - page})
            items = things[begin : begin + page]
        return self.answer(200, {"kind": singular + "List", "apiVersion": version, "metadata": meta, "items": items})

    @staticmethod
    def selects(kind, thing, node):
        return kind != "pods" or thing["spec"].get("nodeName") == node

    def watch(self, kind, query, node, singular, version):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        at = int(query.get("resourceVersion", "0"))
        with changed:
            begun = cuts
            if at < state["oldest"]:
                gone = status(410, "Expired", f"too old resource version: {at} ({state['oldest']})")
                self.line({"type": "ERROR", "object": gone})
                return self.chunk(b"")
        while True:
            with changed:
                new = [e for e in events if e[0] > at and e[1] == kind and self.selects(kind, e[3], node)]
                if not new and cuts == begun:
                    changed.wait(1)
                cut, latest = cuts != begun, state["version"]
            for number, _, what, thing in new:
                if cut:
                    break
                self.line({"type": what, "object": {"kind": singular, "apiVersion": version} | thing})
                at = number
            if cut:
                data = json.dumps({"type": "MODIFIED", "object": {"kind": singular}}).encode()
                self.chunk(data[: len(data) // 2])
                self.close_connection = True
                self.connection.shutdown(2)
                return
            if not new and query.get("allowWatchBookmarks") == "true":
                mark = {"kind": singular, "apiVersion": version, "metadata": {"resourceVersion": str(latest)}}
                self.line({"type": "BOOKMARK", "object": mark})

    def line(self, event):
        self.chunk(json.dumps(event).encode() + b"\n")

    def chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    # The handshake is the thread's: one client that is slow holds up nobody.
    def finish_request(self, request, client_address):
        with self.context.wrap_socket(request, server_side=True) as secure:
            self.RequestHandlerClass(secure, client_address, self)

    def handle_error(self, *_):
        pass


if os.path.exists(STATE):
    with open(STATE, encoding="utf-8") as kept:
        state |= json.load(kept)
    # What happened before is not known any more: but for who has seen the last of it.
    state["oldest"] = state["version"]
Server.context.load_cert_chain(CERTIFICATE, KEY)
port = 0
if os.path.exists(PORT_FILE):
    with open(PORT_FILE, encoding="utf-8") as file:
        port = int(file.read())
server = Server(("127.0.0.1", port), Handler)
with open(PORT_FILE + ".new", "w", encoding="utf-8") as file:
    file.write(str(server.server_address[1]))
os.rename(PORT_FILE + ".new", PORT_FILE)
print("serving", flush=True)
server.serve_forever()
