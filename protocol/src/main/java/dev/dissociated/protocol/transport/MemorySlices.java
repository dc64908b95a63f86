package dev.dissociated.protocol.transport;

/**
 * A message body as slices of local memory, in order. Does not own the memory.
 *
 * @param addresses where each slice starts
 * @param lengths bytes of each slice, none of them 0
 * @param total the sum of the lengths
 */
public record MemorySlices(long[] addresses, long[] lengths, long total) {
  /** One contiguous slice. */
  public static MemorySlices of(long address, long length) {
    return length == 0
        ? new MemorySlices(new long[0], new long[0], 0)
        : new MemorySlices(new long[] {address}, new long[] {length}, length);
  }
}
