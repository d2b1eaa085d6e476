"""A server that `mcp_server.py fork <socket>` forks: it gets the streams of this program, which ends with it."""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as asking:
    asking.connect(sys.argv[1])
    socket.send_fds(asking, [json.dumps([sys.argv[2:], dict(os.environ)]).encode()], [0, 1, 2])
    for stream in (0, 1, 2):
        os.close(stream)  # otherwise the client would not see that the server is gone
    asking.recv(1)
