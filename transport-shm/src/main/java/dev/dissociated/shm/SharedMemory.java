package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.MemoryUsage;
import org.apache.arrow.memory.BufferAllocator;

/**
 * Arrow allocators whose buffers lie in shared memory from the start: batches made from them are
 * handed to clients of this host without any copy.
 *
 * <pre>{@code
 * try (BufferAllocator allocator = SharedMemory.allocator();
 *     VectorSchemaRoot root = VectorSchemaRoot.create(schema, allocator)) { ... }
 * }</pre>
 *
 * <p>Each call gives a root allocator of its own, to be closed by the caller; those of one trust
 * domain share segments, which go back to the kernel when the last of them is closed, its last
 * buffer is released and no connection has been shown them. Keep one open for as long as the
 * application works: fresh segments cost far more than recycled ones. Thread-safe.
 *
 * <p>All of them together stay below a limit: system property {@value #LIMIT_PROPERTY} in bytes,
 * otherwise half of the memory that this process may have. At the limit, allocating throws Arrow's
 * {@link org.apache.arrow.memory.OutOfMemoryException}.
 */
public final class SharedMemory {
  /** The system property with the limit in bytes; read once. */
  public static final String LIMIT_PROPERTY = "dissociated.shm.limit";

  /**
   * The system property that says how to come to huge pages, as the property {@code huge-pages} of
   * a listener does; read once.
   */
  public static final String HUGE_PAGES_PROPERTY = "dissociated.shm.huge-pages";

  private static final class Holder {
    static final Arena ARENA =
        new Arena("dissociated-shm", ArenaSizes.of(limit()).hugePages(hugePages()));
  }

  private SharedMemory() {}

  /**
   * An allocator in the domain of this process's user without identity: what clients of the same
   * user read in place when they come without a Flight identity.
   */
  public static BufferAllocator allocator() {
    return allocator(TrustDomain.own());
  }

  /** An allocator in another trust domain. */
  public static BufferAllocator allocator(TrustDomain domain) {
    return Holder.ARENA.join(domain).newOwnedRoot();
  }

  /** An allocator for data that every client may read, whoever it is. */
  public static BufferAllocator publicAllocator() {
    return allocator(TrustDomain.PUBLIC);
  }

  /** Whether a range of local memory lies in shared memory of this process, of any domain. */
  public static boolean contains(long address, long length) {
    return SegmentRegistry.find(address, length) != null;
  }

  /** What these allocators have reserved and use; listeners have memory of their own. */
  public static MemoryUsage usage() {
    return Holder.ARENA.usage();
  }

  private static HugePaging.Mode hugePages() {
    return HugePaging.parse(System.getProperty(HUGE_PAGES_PROPERTY, "off"));
  }

  private static long limit() {
    String text = System.getProperty(LIMIT_PROPERTY);
    if (text != null) {
      try {
        return Long.parseLong(text);
      } catch (NumberFormatException e) {
        throw new DissociatedException(
            Code.INVALID_ARGUMENT,
            "shared memory not available: " + LIMIT_PROPERTY + " is not a number: " + text);
      }
    }
    return HostMemory.usable() / 2;
  }
}
