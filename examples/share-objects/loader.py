"""A torch DataLoader whose spawned workers share a data set. Arguments: rows, workers."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

import dissociated


def main():
    rows, workers = int(sys.argv[1]), int(sys.argv[2])
    with dissociated.store.start("1g") as store:
        dissociated.init_reduction(store)
        images = store.put_tensor("images", torch.rand(rows, 3, 32, 32))
        labels = store.put_tensor("labels", torch.arange(rows) % 10)
        before = store.usage()["used"]
        # The workers get references to both tensors, not copies of them.
        loader = DataLoader(
            TensorDataset(images, labels),
            batch_size=64,
            num_workers=workers,
            multiprocessing_context="spawn",
        )
        seen = 0
        for batch, classes in loader:
            batch -= 0.5  # changes stay in this process
            seen += len(classes)
        print(f"{workers} workers have read {seen} rows of {images.nbytes >> 20} MiB")
        print("bytes copied for them:", store.usage()["used"] - before)


if __name__ == "__main__":
    main()
