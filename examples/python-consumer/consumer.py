"""Reads a stream that a Java process serves, in place. Argument: the server's Flight port."""

import sys

import dissociated

with dissociated.connect(f"grpc://127.0.0.1:{sys.argv[1]}") as client:
    reader = client.get("flights")
    for batch in reader:
        print(batch.num_rows, "rows,", batch.schema.names)
    print("via", reader.statistics.via)
