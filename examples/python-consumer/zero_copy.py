"""NumPy and pandas look at the server's memory itself. Argument: the server's Flight port."""

import sys

import dissociated

with dissociated.connect(f"grpc://127.0.0.1:{sys.argv[1]}") as client:
    reader = client.get("flights")
    batch = reader.read_next_batch()
    # zero_copy_only: fails rather than copies, which is what happens to columns with nulls.
    delay = batch["delay"].to_numpy(zero_copy_only=True)
    # Without split_blocks pandas would gather the columns of one type in a block, by a copy.
    frame = batch.to_pandas(zero_copy_only=True, split_blocks=True)

    print(f"mean delay {delay.mean():.2f} minutes, longest {frame['delay'].max()}")
    for owner, view in (("numpy", delay), ("pandas", frame["delay"].to_numpy())):
        same = view.ctypes.data == batch["delay"].buffers()[1].address
        print(f"{owner} looks at the server's memory: {same}, writable: {view.flags.writeable}")

    # A view keeps the memory, whatever becomes of the batch. The last one to go gives it back.
    del batch, frame, view
    print("batches in use while a view is left:", reader.outstanding)
    del delay
    print("batches in use after it:", reader.outstanding)
