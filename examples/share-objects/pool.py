"""Eight processes share one array. Arguments: its size in MiB, and how many processes."""

import multiprocessing
import sys
import time

import dissociated


def part_of(task):
    """The sum of one part of the array, and how much memory this process has for itself."""
    array, part, parts = task
    total = int(array[part * len(array) // parts : (part + 1) * len(array) // parts].sum())
    with open("/proc/self/smaps_rollup") as counts:
        own = sum(int(line.split()[1]) for line in counts if line.startswith("Anonymous:"))
    return total, own // 1024


def main():
    mebibytes, workers = int(sys.argv[1]), int(sys.argv[2])
    with dissociated.store.start(f"{mebibytes + 256}m") as store:
        # From now on what multiprocessing pickles has references in it instead of large arrays.
        dissociated.init_reduction(store)
        with store.create("array", mebibytes << 17, "int64") as array:
            array[:] = 1
        array = store.get("array")
        started = time.monotonic()
        with multiprocessing.get_context("spawn").Pool(workers) as pool:
            tasks = [(array, part, workers) for part in range(workers)]
            sums = pool.map(part_of, tasks, chunksize=1)
        assert sum(total for total, _ in sums) == len(array)
        print(f"{workers} processes have summed {mebibytes} MiB")
        print(f"the store has {store.usage()['used'] >> 20} MiB")
        print(f"most memory of a process's own: {max(own for _, own in sums)} MiB")
        print(f"{time.monotonic() - started:.1f} seconds, starting the processes included")


if __name__ == "__main__":
    main()
