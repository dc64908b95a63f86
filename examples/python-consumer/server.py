"""The other way round: Python serves, Java reads. Arguments: the Flight port, an Arrow file."""

import contextlib
import signal
import sys

import pyarrow as pa

import dissociated

# kill ends the program as Ctrl-C does: in order, which takes the socket's file away.
signal.signal(signal.SIGTERM, signal.default_int_handler)

table = pa.ipc.open_file(sys.argv[2]).read_all()
with contextlib.suppress(KeyboardInterrupt), dissociated.serve(
    {"flights": table}, flight=f"grpc://127.0.0.1:{sys.argv[1]}"
) as server:
    print("serving at", server.uri, flush=True)
    server.wait()
