/**
 * Record batches that live on a GPU, handed to other processes in place: CUDA IPC handles and
 * offsets as the specification has them (format-docs/cuda-mapping.md).
 *
 * <p>Everything here can be called on machines without CUDA, and then fails with one line that says
 * what is missing; {@link dev.dissociated.cuda.Cuda#unavailable} says it without failing. A device
 * address is a number in a {@code long}: it never becomes an {@code ArrowBuf}, since reading one is
 * the end of the process.
 */
package dev.dissociated.cuda;
