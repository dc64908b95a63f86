"""Puts a table and a tensor into a store of its own, and waits. No arguments."""

import numpy as np
import pyarrow as pa

import dissociated

ROWS = 1_000_000

with dissociated.connect() as client:  # no path: a daemon of this script's, which ends with it
    client.put("temperatures", pa.table({"celsius": np.arange(ROWS, dtype="float64") % 20}))
    with client.create("squares", (1000, 1000)) as squares:  # lies where the store keeps it
        squares[:] = np.arange(1000) ** 2
    print("store at", client.target, flush=True)
    input("Enter ends it\n")
