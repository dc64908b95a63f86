"""Reads what a producer has put. Argument: where its store is."""

import sys

import dissociated

with dissociated.connect(sys.argv[1]) as client:
    table = client.get("temperatures", timeout=60)  # waits for the name
    celsius = table["celsius"].chunk(0).to_numpy()  # a view of the shared memory
    writable = celsius.flags.writeable
    print(f"{len(celsius)} temperatures, mean {celsius.mean()}, writable: {writable}")
    print("on lease:", client.store.usage()["leases"])
    del table, celsius
    print("on lease after the last view:", client.store.usage()["leases"])
    if "squares" in client.store:
        squares = client.get("squares")
        print(f"squares: {squares.shape}, sum {squares.sum():.0f}")
