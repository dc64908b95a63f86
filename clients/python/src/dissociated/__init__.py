"""Arrow record batches read in place from another process's memory, found through Flight.

>>> with dissociated.connect("grpc://127.0.0.1:47470") as client:    # doctest: +SKIP
...     for batch in client.get("flights"):
...         print(batch.num_rows)
"""

from ._segments import mapping_usage
from .client import Client, connect
from .errors import Code, DissociatedError
from .reader import Chunk, Reader, Statistics
from .reduction import dumps, init_reduction, loads
from .server import Server, serve

__version__ = "0.1.0"

__all__ = [
    "Chunk",
    "Client",
    "Code",
    "DissociatedError",
    "Reader",
    "Server",
    "Statistics",
    "connect",
    "dumps",
    "init_reduction",
    "loads",
    "mapping_usage",
    "serve",
]
